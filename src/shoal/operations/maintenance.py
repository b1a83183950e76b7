"""What has to happen to crawls while nobody looks: their end is noticed, told and cleared away.

Owns the Tender, which every program that stays on a store runs beside its work (`shoal serve`, `shoal worker`). One of
them, by a lock in the store that runs out, closes crawls that are finished, writes down the end of those whose time has
come, tells whom they wanted told, and frees ended ones after `frontier.keep_days`. Each of them makes visible what
workers wrote into files of its own machine. Losing a tender loses nothing: the next one does what was left.

Must not judge what a crawl is about: one that Shoal's own workers do not end (Scrapy's) is left alone.
"""

from __future__ import annotations

import asyncio
import platform
import random
import time

import msgspec

from shoal.errors import FetchError, InvalidInput, ShoalError, StoreHeld, StoreUnavailable
from shoal.fetch import Fetcher, Request
from shoal.frontier import Frontier
from shoal.frontier.inspect import crawl_ids, store_seconds
from shoal.frontier.maintenance_lock import LOCK_SECONDS, MaintenanceLock
from shoal.model.crawl import OUTPUT_AWAY, OUTPUT_REFUSED, Crawl, CrawlKind, State
from shoal.operations.describe import describe
from shoal.operations.events import Emit, ignore_event
from shoal.operations.merge_outputs import is_merged, merge_outputs
from shoal.operations.run import finish_if_over
from shoal.settings import Settings

_ROUND_SECONDS, _ASIDE_SECONDS = 0.5, 3.0
# An ended crawl can run again (its failures are retried): it is looked at again after this time.
_AGAIN_SECONDS = 30.0
# A crawl that stands still is looked at less and less often.
_MOST_SECONDS = 5.0
# A worker says every ten seconds which crawls it has paused.
_ORPHANED_LOOKS = 3
# Pages a second that a fleet might make: what is left takes at least that long.
_FASTEST = 2000
_NOTIFY_SECONDS, _NOTIFY_TRIES, _NOTIFY_LATE_SECONDS, _NOTIFY_AT_ONCE = 10.0, 5, 86400.0, 20
# Workers close their parts some seconds after the last page.
_GATHER_SECONDS = 60.0
# An end that this tender did not see is told if it was not long ago.
_TOLD_LATE_SECONDS = 30.0


class _Known(msgspec.Struct):
    """What a tender remembers of a crawl between two rounds."""

    next_mono: float = 0.0
    pause_seconds: float = _ROUND_SECONDS
    ended: int = -1
    # The version that every shard is known to have.
    version: int = 0
    told: bool = False
    telling: bool = False
    orphaned: int = 0
    tries: int = 0
    # What was told of it last: that it is open, why it waits, or that it has ended.
    shown: str = ""


class Maintainer:
    """`asyncio.create_task(Tender(frontier, settings).run())`; cancel it to end it."""

    def __init__(self, frontier: Frontier, settings: Settings, *, tell: Emit = ignore_event) -> None:
        self._frontier = frontier
        self._settings = settings
        self._machine = platform.node()
        self._tell = tell
        self._said = ""
        self._known: dict[str, _Known] = {}
        self._lock = MaintenanceLock(frontier)
        self._had_lock = False
        self._locked_mono = 0.0
        self._fetcher: Fetcher | None = None
        # One that does not answer holds up nobody else.
        self._telling: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until it is cancelled. A store that is away is waited for."""
        try:
            while True:
                try:
                    chosen = await self._chosen()
                    await self.look(chosen=chosen)
                    pause = _ROUND_SECONDS if chosen else _ASIDE_SECONDS
                    self._said = ""
                except ShoalError as error:
                    self._say(str(error), event="store.trouble")
                    pause = _ASIDE_SECONDS
                await asyncio.sleep(pause * random.uniform(0.9, 1.1))
        finally:
            for task in self._telling:
                task.cancel()
            await asyncio.gather(*self._telling, return_exceptions=True)
            if self._fetcher is not None:
                await self._fetcher.close()

    def look_soon(self, crawl_id: str) -> None:
        """Something was done to a crawl that has ended: it may run again."""
        if known := self._known.get(crawl_id):
            known.next_mono = 0.0

    async def look(self, *, chosen: bool = True) -> None:
        """One round. `chosen`: this tender has the lock."""
        now = time.monotonic()
        ids = await crawl_ids(self._frontier)
        self._known = {one: self._known.get(one) or _Known() for one in ids}
        # Who has just got the lock knows of no crawl how it is.
        new, self._had_lock = chosen and not self._had_lock, chosen
        for crawl_id, known in self._known.items():
            if known.next_mono > now and not new:
                continue
            if chosen and time.monotonic() - self._locked_mono > LOCK_SECONDS / 4:
                await self._chosen()
            try:
                crawl = await self._frontier.crawls.get(crawl_id)
                if chosen and known.version != crawl.version:
                    # Whoever changed it may have died before every shard knew.
                    await self._frontier.crawls.repair(crawl)
                    known.version = crawl.version
                known.next_mono = now + (await self._tend(crawl, known) if chosen else _AGAIN_SECONDS)
                await self._gather(crawl, known)
            except (StoreUnavailable, StoreHeld):
                raise
            except ShoalError as error:
                # One crawl that is not as it should be keeps nobody from tending the others.
                self._say(f"Crawl {crawl_id} is not tended: {error}", event="crawl.trouble", crawl=crawl_id)
                known.next_mono = now + _AGAIN_SECONDS

    async def _tend(self, crawl: Crawl, known: _Known) -> float:
        """Do what is due; returns in how many seconds to look again."""
        if crawl.kind is not CrawlKind.OWN:
            return _AGAIN_SECONDS
        if crawl.state is State.RUNNING and not await self._finish(crawl, known):
            self._show(crawl, known)
            return known.pause_seconds
        if crawl.state is State.PAUSED:
            self._show(crawl, known)
            await self._go_on(crawl, known)
            return _MOST_SECONDS
        if crawl.state is State.DELETED:
            return 1e9
        if crawl.state is State.EXPIRED and not crawl.ended_at:
            await self._frontier.crawls.expire(crawl.id, crawl.limits.expires_at)
        crawl = await self._frontier.crawls.get(crawl.id)
        if crawl.state.open:
            return _ROUND_SECONDS
        ago = await store_seconds(self._frontier) - crawl.ended_at
        await self._show_end(crawl, known, ago)
        keep = self._settings.frontier.keep_days * 86400
        if keep and crawl.ended_at and ago > keep:
            await self._frontier.crawls.delete(crawl.id)
            text = f"Crawl {crawl.id} was deleted: it ended {self._settings.frontier.keep_days:g} days ago."
            self._tell(text, event="crawl.deleted", crawl=crawl.id, app=_app(crawl), why="keep_days")
            return 1e9
        if not known.told:
            await self._notify(crawl, known, ago)
            return float(2**known.tries) if not known.told else _AGAIN_SECONDS
        return _AGAIN_SECONDS

    def _show(self, crawl: Crawl, known: _Known) -> None:
        """Tell of an open crawl that an output of it is away, back or of no use; workers may be on other machines."""
        before = known.shown
        facts = {"crawl": crawl.id, "app": _app(crawl)}
        if crawl.state is State.RUNNING:
            known.shown = "running"
            if before == OUTPUT_AWAY:
                self._tell(f"Crawl {crawl.id} is resumed: its output is back.", event="output.back", **facts)
        elif crawl.why != before and crawl.why in (OUTPUT_AWAY, OUTPUT_REFUSED):
            known.shown = crawl.why
            if crawl.why == OUTPUT_AWAY:
                self._tell(f"Crawl {crawl.id} is paused: its output is away.", event="output.away", **facts)
            else:
                self._tell(f"Crawl {crawl.id} is paused: its output cannot be used.", event="output.refused", **facts)

    async def _show_end(self, crawl: Crawl, known: _Known, ago: float) -> None:
        before, known.shown = known.shown, "ended"
        if before != "ended" and (before or ago < _TOLD_LATE_SECONDS):
            counts = await self._frontier.crawls.count(crawl.id)
            self._tell(
                f"Crawl {crawl.id} has ended: {crawl.why or crawl.state.value}.", event="crawl.end", crawl=crawl.id,
                app=_app(crawl), state=crawl.state.value, why=crawl.why, pages=counts.stored, open=counts.open,
                failed=counts.failed, excluded=counts.excluded,
            )  # fmt: skip

    async def _go_on(self, crawl: Crawl, known: _Known) -> None:
        """Take a pause back whose worker is gone: the next one looks whether the output is there."""
        if crawl.why != OUTPUT_AWAY:
            known.orphaned = 0
            return
        alive = await self._frontier.workers.alive()
        waits = any(crawl.id in paused for one in alive if isinstance(paused := one.info.get("paused"), list))
        known.orphaned = 0 if waits else known.orphaned + 1
        if known.orphaned > _ORPHANED_LOOKS:
            known.orphaned = 0
            await self._frontier.crawls.resume(crawl.id, OUTPUT_AWAY)

    async def _finish(self, crawl: Crawl, known: _Known) -> bool:
        counts = await self._frontier.crawls.count(crawl.id)
        if counts.open:
            still = counts.ended == known.ended
            known.ended = counts.ended
            known.pause_seconds = min(
                _MOST_SECONDS, max(known.pause_seconds * 1.5 if still else _ROUND_SECONDS, counts.open / _FASTEST)
            )
            return False
        known.pause_seconds = _ROUND_SECONDS
        return await finish_if_over(self._frontier, crawl.id)

    async def _notify(self, crawl: Crawl, known: _Known, ago: float) -> None:
        """See to it that the URL which the crawl names is told of its end, once if it listens."""
        url = str(crawl.spec.get("notify") or "")
        if not url or ago > _NOTIFY_LATE_SECONDS or (await self._frontier.crawls.facts.read(crawl.id)).notified:
            known.told = True
        elif not known.telling and len(self._telling) < _NOTIFY_AT_ONCE:
            known.telling = True
            task = asyncio.create_task(self._inform(crawl, known, url))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _inform(self, crawl: Crawl, known: _Known, url: str) -> None:
        known.tries += 1
        facts = {"crawl": crawl.id, "app": _app(crawl), "tries": known.tries}
        try:
            hindrance = await self._post(crawl, url)
            last = known.tries >= _NOTIFY_TRIES
            if not hindrance or last:
                await self._frontier.crawls.facts.mark_notified(crawl.id)
                known.told = True
            if not hindrance:
                self._tell(f"The end of crawl {crawl.id} was told.", event="notify.told", **facts)
            else:
                text = f"The end of crawl {crawl.id} could not be told: {hindrance}{'; given up' if last else ''}."
                self._tell(text, event="notify.failed", why=hindrance, given_up=last, **facts)
        except ShoalError as error:
            text = f"The end of crawl {crawl.id} could not be told: {error}"
            self._say(text, event="crawl.trouble", crawl=crawl.id)
        finally:
            known.telling = False

    async def _post(self, crawl: Crawl, url: str) -> str:
        """'' when it was heard, else why not. The URL may hold a key: of what went wrong only the kind is told."""
        described = await describe(self._frontier, crawl)
        body = {
            "id": crawl.id, "state": crawl.state.value, "why": crawl.why, "app": crawl.spec.get("app", ""),
            "attributes": crawl.spec.get("attributes", {}), "counts": described.counts, "ended_at": crawl.ended_at,
        }  # fmt: skip
        request = Request(
            url=url, method="POST", headers=(("Content-Type", "application/json"), ("User-Agent", "Shoal")),
            body=msgspec.json.encode(body), timeout_seconds=_NOTIFY_SECONDS, body_bytes=10_000, cut=True,
        )  # fmt: skip
        if self._fetcher is None:
            # The same guard as for pages: a notification must not reach what a page may not.
            self._fetcher = Fetcher(self._settings.fetch)
        try:
            status = (await self._fetcher.fetch(request)).status
        except (FetchError, InvalidInput) as error:
            return str(getattr(error, "reason", "it is no URL"))
        return "" if status < 300 else f"status {status}"

    async def _gather(self, crawl: Crawl, known: _Known) -> None:
        """Make visible what workers have written into files of this machine, until some time after the end."""
        # Who can use an embedded store is on its machine.
        ours = ("", self._machine) if not self._settings.store.url else (self._machine,)
        if crawl.spec.get("machine") not in ours or crawl.kind is not CrawlKind.OWN:
            return
        known.next_mono = min(known.next_mono, time.monotonic() + _MOST_SECONDS)
        if crawl.ended_at and await store_seconds(self._frontier) - crawl.ended_at > _GATHER_SECONDS:
            known.next_mono = time.monotonic() + _AGAIN_SECONDS
        if not is_merged(crawl, named=self._settings.outputs):
            live = {worker.name for worker in await self._frontier.workers.alive()}
            for text in await merge_outputs(self._frontier, crawl, live=live, named=self._settings.outputs):
                self._say(text, event="output.trouble", crawl=crawl.id)

    async def _chosen(self) -> bool:
        """Whether this process holds the maintenance lock."""
        self._locked_mono = time.monotonic()
        return await self._lock.hold()

    def _say(self, sentence: str, *, event: str, crawl: str = "") -> None:
        """Once, however often it happens."""
        if sentence != self._said:
            self._said = sentence
            self._tell(sentence, event=event, crawl=crawl)


def _app(crawl: Crawl) -> str:
    return str(crawl.spec.get("app", ""))
