"""Background maintenance of the crawls of a store: finish, expire, notify, purge, repair, merge outputs.

`shoal serve` and `shoal worker` each run a Maintainer beside their work. The one that holds an expiring lock in the
store finishes crawls that are over, records that crawls have expired, sends notifications, and deletes ended crawls
after `frontier.keep_days`. Every Maintainer merges the output files of its own machine. If the holder of the lock
stops, another Maintainer continues. Scrapy crawls are skipped.
"""

from __future__ import annotations

import asyncio
import platform
import random
import time

import msgspec

from shoal.errors import FetchError, InvalidInput, ShoalError, StoreNotReady
from shoal.fetch import Fetcher, Request
from shoal.frontier import Frontier
from shoal.frontier.inspect import crawl_ids, store_seconds
from shoal.frontier.maintenance_lock import LOCK_SECONDS, MaintenanceLock
from shoal.model.crawl import OUTPUT_REFUSED, OUTPUT_UNAVAILABLE, Crawl, CrawlKind, State
from shoal.operations.describe import describe
from shoal.operations.events import Emit, ignore_event
from shoal.operations.history import HistoryWriter
from shoal.operations.merge_outputs import is_merged, merge_outputs
from shoal.operations.run import finish_if_over
from shoal.operations.time_windows import keep_to_windows
from shoal.settings import Settings

_ROUND_SECONDS, _ASIDE_SECONDS = 0.5, 3.0
# An ended crawl can run again (its failures are retried), so it is checked again after this time.
_AGAIN_SECONDS = 30.0
# A crawl without progress is checked less and less often, at least this often.
_MOST_SECONDS = 5.0
# A worker reports every ten seconds which crawls it has paused.
_ORPHANED_CHECKS = 3
# OUTPUT_UNAVAILABLE as workers of version 0.1 record it.
_OLD_OUTPUT_UNAVAILABLE = "output away"
# The most pages per second of a fleet: the open URLs of a crawl take at least as long as this rate needs.
_FASTEST = 2000
_NOTIFY_SECONDS, _NOTIFY_TRIES, _NOTIFY_LATE_SECONDS, _NOTIFY_CONCURRENT = 10.0, 5, 86400.0, 20
# Workers close their parts some seconds after the last page.
_MERGE_SECONDS = 60.0
# An end that this Maintainer did not see is reported if it is at most this old.
_REPORT_LATE_SECONDS = 30.0


class _CrawlState(msgspec.Struct):
    """The state of a crawl that a Maintainer keeps between two rounds."""

    next_mono: float = 0.0
    pause_seconds: float = _ROUND_SECONDS
    ended: int = -1
    # The version that every shard is known to have.
    version: int = 0
    notified: bool = False
    notifying: bool = False
    orphaned: int = 0
    tries: int = 0
    # The state that was reported last: `running`, the reason of a pause, or `ended`.
    shown: str = ""


class Maintainer:
    """Run it as a task: `asyncio.create_task(Maintainer(frontier, settings).run())`. Cancel the task to stop it."""

    def __init__(self, frontier: Frontier, settings: Settings, *, emit: Emit = ignore_event) -> None:
        self._frontier = frontier
        self._settings = settings
        self._machine = platform.node()
        self._emit = emit
        self._last_emitted = ""
        self._known: dict[str, _CrawlState] = {}
        self._lock = MaintenanceLock(frontier)
        self._had_lock = False
        self._locked_mono = 0.0
        # Fetchers by the networks that they may reach.
        self._fetchers: dict[str, Fetcher] = {}
        # Notifications are sent in tasks: a URL that does not respond must not delay other crawls.
        self._notifying: set[asyncio.Task[None]] = set()
        self._history = HistoryWriter(frontier)
        # The history is written in a task, too: the counts of many crawls take longer than a round.
        self._writing: asyncio.Task[bool] | None = None

    async def run(self) -> None:
        """Run until it is cancelled. An unavailable store is retried."""
        try:
            while True:
                try:
                    chosen = await self._chosen()
                    await self.check(chosen=chosen)
                    if chosen:
                        self._write_history()
                    pause = _ROUND_SECONDS if chosen else _ASIDE_SECONDS
                    self._last_emitted = ""
                except ShoalError as error:
                    self._emit_once(str(error), event="store.trouble")
                    pause = _ASIDE_SECONDS
                await asyncio.sleep(pause * random.uniform(0.9, 1.1))
        finally:
            tasks: list[asyncio.Task[None] | asyncio.Task[bool]] = [
                *self._notifying,
                *([self._writing] if self._writing else []),
            ]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for fetcher in self._fetchers.values():
                await fetcher.close()

    def _write_history(self) -> None:
        if self._writing is not None and self._writing.done():
            error = self._writing.exception()
            self._writing = None
            if isinstance(error, ShoalError):
                self._emit_once(f"The history was not written: {error}", event="store.trouble")
            elif error is not None:
                raise error
        if self._writing is None:
            self._writing = asyncio.create_task(self._history.write_if_due())

    def check_soon(self, crawl_id: str) -> None:
        """Check a crawl in the next round, because it was changed."""
        if known := self._known.get(crawl_id):
            known.next_mono = 0.0

    async def check(self, *, chosen: bool = True) -> None:
        """Run one round. `chosen`: this Maintainer holds the lock."""
        now = time.monotonic()
        ids = await crawl_ids(self._frontier)
        self._known = {crawl_id: self._known.get(crawl_id) or _CrawlState() for crawl_id in ids}
        # A Maintainer that has just got the lock does not know the state of any crawl.
        new, self._had_lock = chosen and not self._had_lock, chosen
        for crawl_id, known in self._known.items():
            if known.next_mono > now and not new:
                continue
            if chosen and time.monotonic() - self._locked_mono > LOCK_SECONDS / 4:
                await self._chosen()
            try:
                crawl = await self._frontier.crawls.get(crawl_id)
                if chosen and known.version != crawl.version:
                    # The process that changed it may have died before every shard had the change.
                    await self._frontier.crawls.repair(crawl)
                    known.version = crawl.version
                known.next_mono = now + (await self._maintain(crawl, known) if chosen else _AGAIN_SECONDS)
                await self._merge(crawl, known)
            except StoreNotReady:
                raise
            except ShoalError as error:
                # One broken crawl must not stop the maintenance of the others.
                self._emit_once(
                    f"Maintenance of crawl {crawl_id} failed: {error}", event="crawl.trouble", crawl=crawl_id
                )
                known.next_mono = now + _AGAIN_SECONDS

    async def _maintain(self, crawl: Crawl, known: _CrawlState) -> float:
        """Perform the maintenance that is due. Returns the number of seconds until the next check."""
        if crawl.kind is not CrawlKind.OWN:
            return _AGAIN_SECONDS
        if crawl.state.open and await keep_to_windows(self._frontier, crawl):
            return _MOST_SECONDS
        if crawl.state is State.RUNNING and not await self._finish(crawl, known):
            self._report_state(crawl, known)
            return known.pause_seconds
        if crawl.state is State.PAUSED:
            self._report_state(crawl, known)
            await self._resume_orphan(crawl, known)
            return _MOST_SECONDS
        if crawl.state is State.DELETED:
            return 1e9
        if crawl.state is State.EXPIRED and not crawl.ended_at:
            await self._frontier.crawls.expire(crawl.id, crawl.limits.expires_at)
        crawl = await self._frontier.crawls.get(crawl.id)
        if crawl.state.open:
            return _ROUND_SECONDS
        ago = await store_seconds(self._frontier) - crawl.ended_at
        await self._report_end(crawl, known, ago)
        keep = self._settings.frontier.keep_days * 86400
        if keep and crawl.ended_at and ago > keep:
            await self._frontier.crawls.delete(crawl.id)
            text = f"Deleted crawl {crawl.id}: it ended more than {self._settings.frontier.keep_days:g} days ago."
            self._emit(text, event="crawl.deleted", crawl=crawl.id, app=crawl.app, reason="keep_days")
            return 1e9
        if not known.notified:
            await self._notify(crawl, known, ago)
            return float(2**known.tries) if not known.notified else _AGAIN_SECONDS
        return _AGAIN_SECONDS

    def _report_state(self, crawl: Crawl, known: _CrawlState) -> None:
        """Report that the output of an open crawl is unavailable, back or refused; its workers may be elsewhere."""
        before = known.shown
        facts = {"crawl": crawl.id, "app": crawl.app}
        if crawl.state is State.RUNNING:
            known.shown = "running"
            if before == OUTPUT_UNAVAILABLE:
                self._emit(
                    f"Crawl {crawl.id} resumed: its output is available again.", event="output.recovered", **facts
                )
        elif crawl.why != before and crawl.why in (OUTPUT_UNAVAILABLE, OUTPUT_REFUSED):
            known.shown = crawl.why
            if crawl.why == OUTPUT_UNAVAILABLE:
                self._emit(f"Crawl {crawl.id} is paused: output unavailable.", event="output.unavailable", **facts)
            else:
                self._emit(f"Crawl {crawl.id} is paused: output refused.", event="output.refused", **facts)

    async def _report_end(self, crawl: Crawl, known: _CrawlState, ago: float) -> None:
        before, known.shown = known.shown, "ended"
        if before != "ended" and (before or ago < _REPORT_LATE_SECONDS):
            counts = await self._frontier.crawls.count(crawl.id)
            self._emit(
                f"Crawl {crawl.id} has ended: {crawl.why or crawl.state.value}.", event="crawl.ended", crawl=crawl.id,
                app=crawl.app, state=crawl.state.value, reason=crawl.why, pages=counts.stored, open=counts.open,
                failed=counts.failed, excluded=counts.excluded,
            )  # fmt: skip

    async def _resume_orphan(self, crawl: Crawl, known: _CrawlState) -> None:
        """Resume a crawl whose pausing worker is gone: the next worker checks the output again."""
        if crawl.why not in (OUTPUT_UNAVAILABLE, _OLD_OUTPUT_UNAVAILABLE):
            known.orphaned = 0
            return
        alive = await self._frontier.workers.alive()
        held = any(crawl.id in worker.heartbeat.paused for worker in alive)
        known.orphaned = 0 if held else known.orphaned + 1
        if known.orphaned > _ORPHANED_CHECKS:
            known.orphaned = 0
            await self._frontier.crawls.resume(crawl.id, crawl.why)

    async def _finish(self, crawl: Crawl, known: _CrawlState) -> bool:
        counts = await self._frontier.crawls.count(crawl.id)
        if counts.open:
            is_stalled = counts.ended == known.ended
            known.ended = counts.ended
            known.pause_seconds = min(
                _MOST_SECONDS,
                max(known.pause_seconds * 1.5 if is_stalled else _ROUND_SECONDS, counts.open / _FASTEST),
            )
            return False
        known.pause_seconds = _ROUND_SECONDS
        return await finish_if_over(self._frontier, crawl.id)

    async def _notify(self, crawl: Crawl, known: _CrawlState, ago: float) -> None:
        """Start to send the notification of the crawl's end, unless it was sent or is too late."""
        url = str(crawl.spec.get("notify") or "")
        if not url or ago > _NOTIFY_LATE_SECONDS or (await self._frontier.crawls.facts.read(crawl.id)).notified:
            known.notified = True
        elif not known.notifying and len(self._notifying) < _NOTIFY_CONCURRENT:
            known.notifying = True
            task = asyncio.create_task(self._send(crawl, known, url))
            self._notifying.add(task)
            task.add_done_callback(self._notifying.discard)

    async def _send(self, crawl: Crawl, known: _CrawlState, url: str) -> None:
        known.tries += 1
        facts = {"crawl": crawl.id, "app": crawl.app, "tries": known.tries}
        try:
            failure = await self._post(crawl, url)
            last = known.tries >= _NOTIFY_TRIES
            if not failure or last:
                await self._frontier.crawls.facts.mark_notified(crawl.id)
                known.notified = True
            if not failure:
                self._emit(f"Notification sent: crawl {crawl.id} has ended.", event="notify.sent", **facts)
            else:
                text = f"Notification for crawl {crawl.id} failed: {failure}{'; giving up' if last else ''}."
                self._emit(text, event="notify.failed", reason=failure, given_up=last, **facts)
        except ShoalError as error:
            text = f"Notification for crawl {crawl.id} failed: {error}"
            self._emit_once(text, event="crawl.trouble", crawl=crawl.id)
        finally:
            known.notifying = False

    async def _post(self, crawl: Crawl, url: str) -> str:
        """Return '' if the notification was accepted, else the kind of failure only: the URL may contain a secret."""
        described = await describe(self._frontier, crawl)
        body = {
            "id": crawl.id, "state": crawl.state.value, "why": crawl.why, "app": crawl.app,
            "attributes": crawl.spec.get("attributes", {}), "counts": described.counts, "ended_at": crawl.ended_at,
        }  # fmt: skip
        request = Request(
            url=url, method="POST", headers=(("Content-Type", "application/json"), ("User-Agent", "Shoal")),
            body=msgspec.json.encode(body), timeout_seconds=_NOTIFY_SECONDS, body_bytes=10_000, cut=True,
        )  # fmt: skip
        try:
            status = (await self._fetcher_for(crawl).fetch(request)).status
        except (FetchError, InvalidInput) as error:
            return str(getattr(error, "reason", "invalid URL"))
        return "" if status < 300 else f"status {status}"

    def _fetcher_for(self, crawl: Crawl) -> Fetcher:
        """A fetcher for the networks that the crawl request was allowed to reach, whatever this process is allowed."""
        networks = str(crawl.spec.get("notify_networks") or "")
        fetcher = self._fetchers.get(networks)
        if fetcher is None:
            fetcher = Fetcher(msgspec.structs.replace(self._settings.fetch, allow_networks=networks))
            self._fetchers[networks] = fetcher
        return fetcher

    async def _merge(self, crawl: Crawl, known: _CrawlState) -> None:
        """Merge the output files of this machine, until some time after the crawl's end."""
        # Users of an embedded store are on its machine.
        ours = ("", self._machine) if not self._settings.store.url else (self._machine,)
        if crawl.spec.get("machine") not in ours or crawl.kind is not CrawlKind.OWN:
            return
        known.next_mono = min(known.next_mono, time.monotonic() + _MOST_SECONDS)
        if crawl.ended_at and await store_seconds(self._frontier) - crawl.ended_at > _MERGE_SECONDS:
            known.next_mono = time.monotonic() + _AGAIN_SECONDS
        if not is_merged(crawl, named=self._settings.outputs):
            for text in await merge_outputs(self._frontier, crawl, named=self._settings.outputs):
                self._emit_once(text, event="output.trouble", crawl=crawl.id)

    async def _chosen(self) -> bool:
        """Whether this process holds the maintenance lock."""
        self._locked_mono = time.monotonic()
        return await self._lock.hold()

    def _emit_once(self, sentence: str, *, event: str, crawl: str = "") -> None:
        if sentence != self._last_emitted:
            self._last_emitted = sentence
            self._emit(sentence, event=event, crawl=crawl)
