"""robots.txt for the whole fleet: asked for by whoever holds the host, kept in the store, remembered by its version.

The lease is the mutex: a worker that holds a host and finds no copy fetches it before any page. A redirect to another
host is never followed while this one is held: it becomes a visit of that host, and the visits here wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from shoal.errors import FetchError, StoreCorrupt, StoreFull
from shoal.fetch import Fetcher, Request
from shoal.frontier import Frontier, mono
from shoal.model.response import Response
from shoal.model.visit import Visit
from shoal.politeness.backoff import Fault
from shoal.politeness.robots_parser import MAX_BYTES, Rules
from shoal.politeness.robots_policy import UNREACHABLE_SECONDS, Meaning, RobotsCopy, settle, standing, verdict
from shoal.urls.canonical import Target, canonical
from shoal.worker.crawl_context import CrawlContext, origin
from shoal.worker.hold import Hold
from shoal.worker.page_processor import where

_REMEMBERED = 20_000
# While robots.txt cannot be reached and an older copy serves, this is how often it is asked for.
_AGAIN_SECONDS = 3600.0
# A robots.txt that leads to another host is waited for this long; then it counts as unreachable.
_PENDING_SECONDS = 120.0
_LOOK_AGAIN_SECONDS = 1.0
_VERSION = 1


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """What the store has of one authority and product token. Moments are on the store's clock, 0 = never."""

    version: int = _VERSION
    copy: bytes = b""
    unreachable_at: float = 0.0
    pending_until: float = 0.0


class _Known(NamedTuple):
    robots_version: int
    copy: RobotsCopy | None
    unreachable_at: float
    pending_until: float
    # The store's clock when this was read, and ours.
    store_seconds: float
    read_mono: float

    @property
    def now(self) -> float:
        return self.store_seconds + mono() - self.read_mono


class Wait(NamedTuple):
    """Nothing of this host may be asked now. `answer` is what went wrong.

    None: somebody fetches it from elsewhere, or, without `seconds`, the lease was over before it could be asked for.
    """

    answer: int | Fault | None
    seconds: float = 0.0
    reason: str = ""
    page: Response | None = None

    @property
    def over(self) -> bool:
        return self.answer is None and not self.seconds


class Elsewhere(msgspec.Struct, frozen=True, array_like=True):
    """Carried by a visit that fetches the robots.txt of another host: whose it is, for whom, hops made."""

    host: str
    name: str
    hops: int


class RobotsGate:
    def __init__(self, frontier: Frontier, fetcher: Fetcher, count_request: Callable[[int], None]) -> None:
        self._frontier = frontier
        self._fetcher = fetcher
        self._count = count_request
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()

    async def rules(self, hold: Hold, visit: Visit, target: Target, conduct: CrawlContext) -> Rules | Wait:
        """What holds for this URL now; fetches robots.txt first if need be."""
        host = hold.lease.host
        site = origin(target)
        name = f"{_kept_as(site)} {conduct.token}"
        known = self._known.get((host, name))
        if known is None or known.robots_version != hold.lease.robots_version:
            known = await self._read(hold, host, name)
        now = known.now
        holds = standing(known.copy, token=conduct.token, now=now, unreachable=known.unreachable_at > 0)
        if holds.rules is not None and not holds.fetch:
            return holds.rules
        old = known.copy if known.copy is not None and now - known.copy.confirmed_at < UNREACHABLE_SECONDS else None
        if old is not None and holds.rules is not None and now - known.unreachable_at < _AGAIN_SECONDS:
            return holds.rules
        if known.pending_until > now:
            return Wait(None, _LOOK_AGAIN_SECONDS)
        if known.pending_until:
            # The visit that should have fetched it elsewhere did not come back.
            await self._keep(host, name, known._replace(pending_until=0.0, unreachable_at=now))
            return Wait(Fault.TIMED_OUT, reason="robots.txt elsewhere: no answer")
        elsewhere = Elsewhere(host, name, 0)
        return await self._fetch(hold, f"{site}/robots.txt", elsewhere, known, conduct, visit)

    async def fetch_elsewhere(self, hold: Hold, visit: Visit, conduct: CrawlContext) -> tuple[str, Rules | Wait]:
        """Make a visit that fetches another host's robots.txt: that host, and what is known of it now."""
        asked = msgspec.convert(visit.meta["robots"], Elsewhere)
        known = await self._read(None, asked.host, asked.name)
        return asked.host, await self._fetch(hold, visit.url, asked, known, conduct, visit)

    async def _fetch(
        self, hold: Hold, url: str, asked: Elsewhere, known: _Known, conduct: CrawlContext, visit: Visit
    ) -> Rules | Wait:
        """Follow robots.txt as far as the host in hand goes."""
        hops = asked.hops
        while True:
            if not await hold.keep_gap():
                return Wait(None)
            # Validators belong to the address the copy came from; after a redirect nobody knows which that was.
            copy = known.copy if hops == 0 else None
            answer, page = await self._ask(hold, url, copy, conduct)
            status = answer if isinstance(answer, int) else None
            meaning = verdict(status, hops=hops, has_copy=copy is not None and bool(copy.etag or copy.last_modified))
            if meaning is not Meaning.REDIRECT or page is None:
                return await self._settle(meaning, answer, page, hold, asked, known, conduct)
            hops += 1
            there = where(url, page.header("location"))
            if there is None:
                # A redirect to nowhere: there is no such file (RFC 9309 2.3.1.2).
                return await self._settle(Meaning.UNAVAILABLE, answer, page, hold, asked, known, conduct)
            url = there.url
            if there.host != hold.lease.host:
                return await self._send_on(there, asked, hops, known, visit)

    async def _ask(
        self, hold: Hold, url: str, copy: RobotsCopy | None, conduct: CrawlContext
    ) -> tuple[int | Fault, Response | None]:
        headers = list(conduct.headers(canonical(url)))
        if copy is not None and copy.etag:
            headers.append(("If-None-Match", copy.etag))
        elif copy is not None and copy.last_modified:
            headers.append(("If-Modified-Since", copy.last_modified))
        policy = conduct.policy
        request = Request(
            url=url, headers=tuple(headers), timeout_seconds=policy.timeout_seconds, body_bytes=MAX_BYTES + 1, cut=True,
            ftp=conduct.ftp,
        )  # fmt: skip
        try:
            page = await hold.fetch(self._fetcher, request)
        except FetchError as error:
            hold.finish(success=False, response_seconds=None)
            self._count(0)
            return Fault(error.fault), None
        except asyncio.CancelledError:
            # Aborted, at a stop: the host has been asked until now.
            hold.finish(success=None, response_seconds=None)
            raise
        hold.finish(success=None, response_seconds=page.timings.total)
        self._count(page.bytes_received)
        return page.status, page

    async def _settle(
        self, meaning: Meaning, answer: int | Fault, page: Response | None, hold: Hold, asked: Elsewhere, known: _Known,
        conduct: CrawlContext,
    ) -> Rules | Wait:  # fmt: skip
        now = known.now
        host, name = asked.host, asked.name
        if meaning in (Meaning.UNREACHABLE, Meaning.REDIRECT):
            known = known._replace(unreachable_at=now, pending_until=0.0)
            await self._keep(host, name, known)
            holds = standing(known.copy, token=conduct.token, now=now, unreachable=True)
            if (
                known.copy is not None
                and holds.rules is not None
                and now - known.copy.confirmed_at < UNREACHABLE_SECONDS
            ):
                return holds.rules
            reason = f"status {answer}" if isinstance(answer, int) else answer.value
            return Wait(answer, reason=f"robots.txt: {reason}", page=page)
        copy = settle(
            meaning, now=now, copy=known.copy, body=page.body if page else b"", token=conduct.token,
            etag=page.header("etag") if page else "", last_modified=page.header("last-modified") if page else "",
        )  # fmt: skip
        assert copy is not None  # noqa: S101 - every other meaning gives one
        known = known._replace(copy=copy, unreachable_at=0.0, pending_until=0.0)
        await self._keep(host, name, known)
        if host == hold.lease.host:
            hold.success = True
            hold.wants(copy.rules.crawl_delay_seconds)
        return copy.rules

    async def _send_on(self, there: Target, asked: Elsewhere, hops: int, known: _Known, visit: Visit) -> Wait:
        """Let whoever holds the next host fetch it; a worker that holds two hosts could wait for itself."""
        onward = msgspec.structs.replace(asked, hops=hops)
        meta = {"robots": msgspec.to_builtins(onward)}
        # Forced: the same address may have been a visit of this crawl before. Priority: pages wait for it.
        await self._frontier.add(
            visit.crawl, [Visit(url=there.url, priority=100, found="other", meta=meta)], force=True, skip_invalid=True
        )
        await self._keep(asked.host, asked.name, known._replace(pending_until=known.now + _PENDING_SECONDS))
        return Wait(None, _LOOK_AGAIN_SECONDS)

    async def _read(self, hold: Hold | None, host: str, name: str) -> _Known:
        called = mono()
        kept, store_seconds = await self._frontier.robots.read(host, name)
        version = 0 if hold is None else hold.lease.robots_version
        known = _Known(version, None, 0.0, 0.0, store_seconds, called)
        if kept:
            try:
                found = msgspec.msgpack.decode(kept, type=_Kept)
                if found.version == _VERSION:
                    copy = RobotsCopy.unpack(found.copy) if found.copy else None
                    known = _Known(version, copy, found.unreachable_at, found.pending_until, store_seconds, called)
            except (msgspec.MsgspecError, StoreCorrupt):
                pass  # Not ours: robots.txt is asked for again.
        if hold is not None:
            self._remember(host, name, known)
        return known

    async def _keep(self, host: str, name: str, known: _Known) -> None:
        copy = known.copy
        kept = _Kept(_VERSION, copy.pack() if copy else b"", known.unreachable_at, known.pending_until)
        delay = copy.rules.crawl_delay_seconds if copy else 0.0
        # A store without memory for it: this worker knows, and the next one asks again.
        with contextlib.suppress(StoreFull):
            await self._frontier.robots.write(
                host, name, msgspec.msgpack.encode(kept), known=copy is not None, crawl_delay_seconds=delay
            )
        self._remember(host, name, known)

    def _remember(self, host: str, name: str, known: _Known) -> None:
        self._known[host, name] = known
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)


def _kept_as(site: str) -> str:
    """How the store names an authority: without a login. It knows http and https, so FTP is there by its port."""
    scheme, _, authority = site.partition("://")
    authority = authority.rpartition("@")[2]
    if scheme == "ftp":
        return f"http://{authority}" + ("" if re.search(r":[0-9]+$", authority) else ":21")
    return f"{scheme}://{authority}"
