"""The robots.txt gate: may this URL be requested now? One gate for workers and for Scrapy.

The fleet fetches each robots.txt once and shares the copy through the store (`frontier/robots_cache.py`). The lease is
the mutex: the lease holder of a host that has no copy fetches robots.txt before any page. A redirect to another host is
not followed under this lease. It becomes a visit of that host, made by the process that leases that host, with its
delay, while the visits here wait. `fetch` sends the request; the gate decides when and what the response means.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from shoal.errors import ShoalError, StoreFull
from shoal.frontier import Frontier, mono
from shoal.frontier.robots_cache import RobotsEntry
from shoal.leases.held_lease import HeldLease
from shoal.model.response import Response
from shoal.model.visit import Visit
from shoal.politeness.backoff import Fault
from shoal.politeness.robots_policy import UNREACHABLE_SECONDS, Meaning, RobotsCopy, settle, standing, verdict
from shoal.politeness.robots_rules import Rules
from shoal.urls.canonical import Target, resolve_header

_REMEMBERED = 20_000
# How often an unreachable robots.txt is requested again while an older copy is still valid.
_RETRY_SECONDS = 3600.0
# How long to wait for the visit of another host to fetch robots.txt; then it counts as unreachable.
_PENDING_SECONDS = 120.0
_POLL_SECONDS = 1.0
# Pages wait for the visit that fetches robots.txt from another host.
_PRIORITY = 100
# The key in `Visit.meta` that marks such a visit.
REDIRECTED = "robots"


class RobotsRequest(NamedTuple):
    """A request for robots.txt.

    url       may differ from the host's own robots.txt after a redirect
    headers   validators of the stored copy
    crawl     the crawl whose visit needs the rules
    lease     the lease under which the request is sent; None outside of a lease
    """

    url: str
    headers: tuple[tuple[str, str], ...]
    crawl: str
    lease: HeldLease | None


# Returns the response to a URL that needs no request, None if one must be sent.
CachedResponse = Callable[[str], Response | None]
# Sends one request and follows no redirect. None: the lease ended before a response arrived, or its holder stops.
FetchRobots = Callable[[RobotsRequest], Awaitable[Response | Fault | None]]


class Wait(NamedTuple):
    """No page of this host may be requested now.

    cause     the status or fault; None while another host's visit fetches robots.txt, or when the lease ended
    seconds   when to check again, while another host's visit fetches robots.txt; otherwise 0
    reason    one short phrase for `cause`
    response  the response with that status
    """

    cause: int | Fault | None
    seconds: float = 0.0
    reason: str = ""
    response: Response | None = None

    @property
    def lease_ended(self) -> bool:
        return self.cause is None and not self.seconds


class RedirectedRobots(msgspec.Struct, frozen=True, array_like=True):
    """Carried by a visit that fetches another host's robots.txt: that host, the copy's name, redirects so far."""

    host: str
    name: str
    hops: int


class _Known(NamedTuple):
    """An entry as read from the store. `store_seconds` is the store's clock at `read_mono`."""

    entry: RobotsEntry
    robots_version: int
    store_seconds: float
    read_mono: float

    @property
    def now(self) -> float:
        return self.store_seconds + mono() - self.read_mono


class RobotsGate:
    def __init__(self, frontier: Frontier, fetch: FetchRobots, cached: CachedResponse | None = None) -> None:
        self._frontier = frontier
        self._fetch = fetch
        self._cached = cached
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()

    def cached(self, lease: HeldLease, target: Target, token: str) -> Rules | None:
        """Return the current rules if this process knows them, without I/O; None: await `rules`."""
        known = self._known.get((lease.lease.host, copy_name(target, token)))
        if known is None or known.robots_version != lease.lease.robots_version:
            return None
        return _current(known, token)

    def remembered(self, target: Target, token: str) -> Rules | None:
        """Return the rules this process last used for a URL, however old they are."""
        known = self._known.get((target.host, copy_name(target, token)))
        return None if known is None or known.entry.copy is None else known.entry.copy.rules

    async def rules(self, lease: HeldLease | None, target: Target, token: str, crawl: str) -> Rules | Wait:
        """Return the rules for a URL, fetching robots.txt first if necessary.

        Without a lease, `fetch` itself waits until each host may be requested, so redirects are followed anywhere.
        """
        host, name = target.host if lease is None else lease.lease.host, copy_name(target, token)
        known = self._known.get((host, name))
        if known is None or lease is None or known.robots_version != lease.lease.robots_version:
            known = await self._read(lease, host, name)
            self._remember(host, name, known)
        if (rules := _current(known, token)) is not None:
            return rules
        entry, now = known.entry, known.now
        if entry.pending_until > now:
            return Wait(None, _POLL_SECONDS)
        if entry.pending_until:
            # The visit of the other host did not report back.
            entry = msgspec.structs.replace(entry, pending_until=0.0, unreachable_at=now)
            await self._write(host, name, known._replace(entry=entry))
            return Wait(Fault.TIMED_OUT, reason="robots.txt on another host: no response")
        request = RobotsRequest(f"{target.origin}/robots.txt", (), crawl, lease)
        return await self._follow(request, RedirectedRobots(host, name, 0), known, token)

    async def fetch_redirected(self, lease: HeldLease, visit: Visit) -> tuple[str, Rules | Wait]:
        """Make a visit that fetches another host's robots.txt. Returns that host and the result.

        Raises msgspec.ValidationError if the visit does not name one.
        """
        redirected = msgspec.convert(visit.meta[REDIRECTED], RedirectedRobots)
        known = await self._read(None, redirected.host, redirected.name)
        request = RobotsRequest(visit.url, (), visit.crawl, lease)
        token = redirected.name.partition(" ")[2]
        return redirected.host, await self._follow(request, redirected, known, token)

    async def _follow(
        self, request: RobotsRequest, redirected: RedirectedRobots, known: _Known, token: str
    ) -> Rules | Wait:
        """Request robots.txt and follow its redirects as far as they stay on the leased host."""
        lease, hops = request.lease, redirected.hops
        while True:
            # Validators belong to the address the copy came from, which is unknown after a redirect.
            copy = known.entry.copy if hops == 0 else None
            headers = _validators(copy)
            result = await self._send(request._replace(headers=headers))
            if result is None:
                return Wait(None)
            response = result if isinstance(result, Response) else None
            status = None if response is None else response.status
            meaning = verdict(status, hops=hops, has_copy=bool(headers))
            if meaning is not Meaning.REDIRECT or response is None:
                return await self._conclude(meaning, result, lease, redirected, known, token)
            hops += 1
            target = resolve_header(request.url, response.header("location"))
            if target is None:
                # A redirect without a valid address: there is no such file (RFC 9309 2.3.1.2).
                return await self._conclude(Meaning.UNAVAILABLE, result, lease, redirected, known, token)
            request = request._replace(url=target.url)
            if lease is not None and target.host != lease.lease.host:
                return await self._hand_over(target, redirected, hops, known, request.crawl)

    async def _send(self, request: RobotsRequest) -> Response | Fault | None:
        lease = request.lease
        if self._cached is not None and (response := self._cached(request.url)) is not None:
            return response
        if lease is None:
            return await self._fetch(request)
        if not await lease.keep_gap():
            return None
        try:
            result = await self._fetch(request)
        except asyncio.CancelledError:
            # Aborted at shutdown: the host was busy with this request until now.
            lease.finish(success=None, response_seconds=None)
            raise
        if isinstance(result, Response):
            lease.finish(success=None, response_seconds=result.timings.total or None)
        elif result is not None:
            lease.finish(success=False, response_seconds=None)
        return result

    async def _conclude(
        self, meaning: Meaning, result: Response | Fault, lease: HeldLease | None, redirected: RedirectedRobots,
        known: _Known, token: str,
    ) -> Rules | Wait:  # fmt: skip
        """Store the result of the last response of a chain."""
        host, name = redirected.host, redirected.name
        entry, now = known.entry, known.now
        response = result if isinstance(result, Response) else None
        if meaning in (Meaning.UNREACHABLE, Meaning.REDIRECT):
            entry = msgspec.structs.replace(entry, unreachable_at=now, pending_until=0.0)
            await self._write(host, name, known._replace(entry=entry))
            rules = standing(entry.copy, token=token, now=now, unreachable=True).rules
            if rules is not None and _is_usable(entry.copy, now):
                return rules
            if isinstance(result, Response):
                return Wait(result.status, reason=f"robots.txt: status {result.status}", response=result)
            # No page could be requested from an unknown host either, so the reason does not name robots.txt.
            prefix = "" if result is Fault.UNKNOWN_HOST else "robots.txt: "
            return Wait(result, reason=f"{prefix}{result.value}")
        copy = settle(
            meaning, now=now, copy=entry.copy, body=response.body if response else b"", token=token,
            etag=response.header("etag") if response else "",
            last_modified=response.header("last-modified") if response else "",
        )  # fmt: skip
        assert copy is not None  # noqa: S101 - every other meaning gives one
        await self._write(host, name, known._replace(entry=RobotsEntry(copy)))
        if lease is not None and host == lease.lease.host:
            lease.succeed()
            lease.require_delay(copy.rules.crawl_delay_seconds)
        return copy.rules

    async def _hand_over(
        self, target: Target, redirected: RedirectedRobots, hops: int, known: _Known, crawl: str
    ) -> Wait:
        """Leave the next request to the lease holder of that host. Holding two hosts at once could deadlock."""
        meta = {REDIRECTED: msgspec.to_builtins(msgspec.structs.replace(redirected, hops=hops))}
        visit = Visit(url=target.url, priority=_PRIORITY, found="other", meta=meta)
        # Written before the visit is added: another process may make it at once, and its result must not be
        # overwritten.
        entry = msgspec.structs.replace(known.entry, pending_until=known.now + _PENDING_SECONDS)
        await self._write(redirected.host, redirected.name, known._replace(entry=entry))
        try:
            # Forced: the crawl may have visited the same URL before.
            await self._frontier.add(crawl, [visit], force=True, skip_invalid=True)
        except ShoalError:
            await self._write(redirected.host, redirected.name, known)
            raise
        return Wait(None, _POLL_SECONDS)

    async def _read(self, lease: HeldLease | None, host: str, name: str) -> _Known:
        called_mono = mono()
        stored, store_seconds = await self._frontier.robots.read(host, name)
        version = 0 if lease is None else lease.lease.robots_version
        return _Known(RobotsEntry.unpack(stored), version, store_seconds, called_mono)

    async def _write(self, host: str, name: str, known: _Known) -> None:
        copy = known.entry.copy
        delay = copy.rules.crawl_delay_seconds if copy else 0.0
        # If the store is full, this process remembers the copy and the next one fetches robots.txt again.
        with contextlib.suppress(StoreFull):
            await self._frontier.robots.write(
                host, name, known.entry.pack(), known=copy is not None, crawl_delay_seconds=delay
            )
        self._remember(host, name, known)

    def _remember(self, host: str, name: str, known: _Known) -> None:
        self._known[host, name] = known
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)


def _current(known: _Known, token: str) -> Rules | None:
    """The rules that may be used now without a request for robots.txt."""
    entry, now = known.entry, known.now
    current = standing(entry.copy, token=token, now=now, unreachable=entry.unreachable_at > 0)
    if current.rules is None:
        return None
    if not current.fetch:
        return current.rules
    recent = now - entry.unreachable_at < _RETRY_SECONDS
    return current.rules if recent and _is_usable(entry.copy, now) else None


def _is_usable(copy: RobotsCopy | None, now: float) -> bool:
    return copy is not None and now - copy.confirmed_at < UNREACHABLE_SECONDS


def _validators(copy: RobotsCopy | None) -> tuple[tuple[str, str], ...]:
    if copy is not None and copy.etag:
        return (("If-None-Match", copy.etag),)
    if copy is not None and copy.last_modified:
        return (("If-Modified-Since", copy.last_modified),)
    return ()


def copy_name(target: Target, token: str) -> str:
    """The name of a copy in the store: no login, and FTP as http with its port."""
    if not target.whole and target.scheme != "ftp":
        return f"{target.scheme}://{target.host} {token}"
    scheme, _, authority = target.origin.partition("://")
    authority = authority.rpartition("@")[2]
    if scheme == "ftp":
        return f"http://{authority}{'' if re.search(r':[0-9]+$', authority) else ':21'} {token}"
    return f"{scheme}://{authority} {token}"
