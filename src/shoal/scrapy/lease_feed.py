"""The lease feed: turns leases into requests for Scrapy, one after the other in each leased slot of a host.

A background task leases as many slots as Scrapy can use, so `next` never waits for the store. A slot is released as
soon as its last request has left the downloader, even while items still wait in a pipeline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from scrapy import Request
from scrapy.http import Response
from scrapy.settings import BaseSettings

from shoal.errors import InvalidUrl, StoreCorrupt, StoreNotReady
from shoal.frontier import Frontier, mono
from shoal.leases.lease_size import SCRAPY_VISITS
from shoal.leases.renewer import LeaseRenewer
from shoal.leases.robots_gate import REDIRECTED
from shoal.model.visit import Visit
from shoal.politeness.backoff import is_success
from shoal.scrapy.background import BackgroundTasks
from shoal.scrapy.codec import NotInThisProcess
from shoal.scrapy.download_slots import DownloadSlots
from shoal.scrapy.downloads import Downloads
from shoal.scrapy.feeds import Feeds
from shoal.scrapy.held_back import HeldBack
from shoal.scrapy.leased_slot import SLOT, LeasedSlot
from shoal.scrapy.left_to_others import LeftToOthers
from shoal.scrapy.outbox import LINGER_SECONDS, Outbox
from shoal.scrapy.outcomes import Outcomes
from shoal.scrapy.request_identity import RequestIdentity
from shoal.scrapy.request_target import target_of
from shoal.scrapy.robots import ScrapyRobots
from shoal.scrapy.throttle import Throttle
from shoal.scrapy.unscheduled import UnscheduledRequests, is_unscheduled

log = logging.getLogger("shoal.scrapy")
# In a broad crawl most hosts only wait for their delay. With fewer slots, these hosts would block others.
_MOST_SLOTS = 256
# With many leased visits in stock, calls for leases are this far apart; with none, there is no pause between them.
_SPACING_SECONDS = 0.05
_WAIT_SECONDS = 1.0
# If items take longer than this to pass the pipelines, the host is released.
_PIPELINE_SECONDS = 0.2
# If Scrapy takes no request for this long because all of its requests wait for files, the visits are released.
_FULL_SECONDS = 0.3


class LeaseFeed:
    def __init__(
        self, frontier: Frontier, tag: str, identity: RequestIdentity, outbox: Outbox, robots: ScrapyRobots | None,
        renewer: LeaseRenewer, unscheduled: UnscheduledRequests, download_slots: DownloadSlots, left: LeftToOthers,
        engine: Any, settings: BaseSettings, *, several: bool, wake: Callable[[float], None],
    ) -> None:  # fmt: skip
        self._frontier = frontier
        self._tag = tag
        self._identity = identity
        self._outbox = outbox
        self._robots = robots
        self._renewer = renewer
        self._unscheduled = unscheduled
        unscheduled.on_waiting = self.stir
        self._download_slots = download_slots
        self._engine = engine
        self._downloads = Downloads(engine.downloader, self._admit, self._give_up)
        self._wake = wake
        self._most = settings.getint("CONCURRENT_REQUESTS") or 100
        self._most_slots = max(4 * self._most, _MOST_SLOTS)
        self._several = several
        self._throttle = Throttle(settings) if settings.getbool("AUTOTHROTTLE_ENABLED") else None
        self._slots: dict[str, LeasedSlot] = {}
        self._open: dict[Request, tuple[LeasedSlot, Visit]] = {}
        self.outcomes = Outcomes()
        self._held_back = HeldBack()
        self._left = left
        self.feeds: Feeds
        self._opened: set[str] = set()
        self._tasks = BackgroundTasks()
        self._changed = asyncio.Event()
        self._lease_requested_mono, self._full_mono, self.stopping = 0.0, 0.0, False
        # No slot has a request to send before this time, unless one changes.
        self._quiet_until_mono = 0.0
        self._hungry = False  # the last call returned nothing

    @property
    def idle(self) -> bool:
        """Whether this process has neither requests nor leased visits."""
        return not self._open and all(slot.spent and not slot.open for slot in self._slots.values())

    def next(self) -> Request | None:
        """Return a request that may be sent now."""
        if (quiet := self._quiet_until_mono - mono()) > 0:
            self._wake(quiet)
            return None
        soonest = float("inf")
        for slot in self._slots.values():
            wait = slot.free_in_seconds
            if wait > 0 or not slot.trusted:
                soonest = min(soonest, wait)
                continue
            visit = slot.queue[0]
            if is_unscheduled(visit):
                self._serve(slot)
                soonest = 0.0
                continue
            if REDIRECTED in visit.meta:
                slot.learning = True
                self._tasks.spawn(self._fetch_redirected(slot, visit))
                continue
            try:
                request = self._identity.request(visit)
            except NotInThisProcess as error:
                slot.queue.popleft()
                self._outbox.end(slot, self._left.leave(visit, str(error)))
                soonest = 0.0
                continue
            except StoreCorrupt as error:
                slot.queue.popleft()
                log.error("%s", error)
                self._outbox.end(slot, visit.failed("not a request of this spider"))
                soonest = 0.0
                continue
            if self._robots is not None:
                if not self._robots.is_ready(slot, request):
                    slot.learning = True
                    self._tasks.spawn(self._learn(slot, request, self._robots))
                    continue
                if reason := self._robots.unavailable(slot.lease.host):
                    self.outcomes.fault(request, reason)
            slot.queue.popleft()
            request.meta.setdefault("download_slot", SLOT)
            request.meta["autothrottle_dont_adjust_delay"] = True
            slot.start(request)
            self._open[request] = (slot, visit)
            return request
        if soonest != float("inf"):
            self._wake(soonest)
            # Scrapy calls `next` several times for each page, and a broad crawl has many slots to check.
            self._quiet_until_mono = mono() + soonest
        return None

    def answered(self, request: Request, response: Response) -> None:
        if request in self._open:
            slot = self._open[request][0]
            slot.status = response.status
            latency = request.meta.get("download_latency")
            if self._throttle is not None and isinstance(latency, float):
                slot.adaptive_seconds = self._throttle.delay_seconds(slot.delay_seconds, latency, response.status)

    def left(self, request: Request) -> None:
        """A request has left the downloader, with or without a response: the delay of its host starts now."""
        if request not in self._open:
            return
        slot = self._open[request][0]
        slot.request = None
        latency = request.meta.get("download_latency")
        broken = self._downloads.was_aborted(request)
        slot.finish(
            success=None if broken else is_success(slot.status) if slot.status else False,
            response_seconds=latency if isinstance(latency, float) else None,
        )
        if not slot.status:
            self.outcomes.fault(request, "no response")
        self.stir()
        if slot.queue:
            self._serve(slot)
            self._wake(slot.gap_seconds)

    def fault(self, request: Request | None, reason: str) -> None:
        if request in self._open:
            self.outcomes.fault(request, reason)

    def ended(self, request: Request) -> None:
        """Scrapy has finished a request: its callback is consumed, its items have passed the pipelines."""
        for slot, outcome in self._held_back.finish(request):
            self._outbox.end(slot, outcome)
        entry = self._open.pop(request, None)
        if entry is None:
            return
        slot, visit = entry
        if slot.request is request:
            # It never reached the downloader: a middleware returned a response or dropped it.
            slot.request = None
            self._serve(slot)
        outcome = self.outcomes.of(request, visit)
        if self._downloads.was_aborted(request):
            # Neither stored nor failed: it is queued again when the lease expires in the store.
            slot.open.pop(visit.number, None)
            self.feeds.discard(request)
        else:
            self.feeds.finish(request, slot.lease.token, visit.number)
            if not self._held_back.keep(request, slot, outcome):
                self._outbox.end(slot, outcome)
        self.stir()

    def hold_back(self, request: Request) -> None:
        """A request stays in this process: the requests that may have yielded it are acknowledged after it."""
        self._held_back.add(request, list(self._engine._slot.inprogress), self._open)

    def is_leased(self, request: Request) -> bool:
        return request in self._open

    async def _admit(self, request: Request) -> bool:
        """Let a request of a slot through; one that did not come from the scheduler waits for its host's turn."""
        if request in self._open or any(slot.request is request for slot in self._slots.values()):
            return False
        try:
            target_of(request.url)
        except InvalidUrl:
            return False
        await self._unscheduled.wait_turn(request)
        return True

    def _serve(self, slot: LeasedSlot) -> None:
        """Send an unscheduled request whose turn has come: Scrapy already waits for it. Called when a slot changes."""
        self._quiet_until_mono = 0.0
        while slot.queue and is_unscheduled(slot.queue[0]):
            wait = slot.free_in_seconds
            if wait > 0 or not slot.trusted:
                if slot.resting:
                    asyncio.get_running_loop().call_later(wait, self._serve, slot)
                return
            visit = slot.queue.popleft()
            request = self._unscheduled.admit(visit)
            if request is None:
                self._outbox.end(slot, visit.excluded("its request was cancelled"))
            else:
                slot.start(request)
                self._open[request] = (slot, visit)

    def _give_up(self, request: Request) -> None:
        slot, visit = self._open.pop(request)
        slot.request = None
        self._quiet_until_mono = 0.0
        slot.open.pop(visit.number, None)

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self._turn()
            except StoreNotReady as error:
                log.error("%s Retrying.", error)
                await asyncio.sleep(1.0)

    async def watch(self, lease_seconds: float) -> None:
        """Abort a request when its lease expires: another process may request the host a moment later."""
        while True:
            # A lease is trusted until a tenth of it, or five seconds, are left.
            await asyncio.sleep(min(lease_seconds / 40, 1.0))
            for slot in self._slots.values():
                if slot.request is not None and not slot.trusted:
                    # Lost for good, even if the store is available again: the renewer skips it from now on.
                    slot.lost = True
                    self._downloads.abort(slot.request)

    async def _turn(self) -> None:
        await self._tidy()
        spiders = [self._tag, self._unscheduled.tag] if self._unscheduled.active else [self._tag]
        if self._stuck:
            await self._release_all()
            spiders = [self._unscheduled.tag]
        active = [slot for slot in self._slots.values() if not slot.resting]
        busy = sum(1 for slot in active if not slot.spent)
        room = min(self._most - busy, self._most_slots - len(self._slots) + len(self._held_back))
        if room <= 0 and len(self._unscheduled):
            # Scrapy has no room for requests of the scheduler, but it already waits for unscheduled ones.
            room, spiders = min(self._most, len(self._unscheduled)), [self._unscheduled.tag]
        if room <= 0 or self._outbox.full:
            await self._pause()
            return
        stock = sum(len(slot.queue) for slot in active)
        ease = _SPACING_SECONDS * min(1.0, stock / self._most)
        self._outbox.linger_seconds = LINGER_SECONDS + ease / 2
        early = self._lease_requested_mono + ease - mono()
        if early > 0:
            await asyncio.sleep(early)
        self._lease_requested_mono = mono()
        wait_seconds = 0.0 if self.idle and not self._hungry else self._wait_seconds
        leases = await self._frontier.lease(
            hosts=room, visits=SCRAPY_VISITS, spiders=spiders, wait_seconds=wait_seconds
        )
        self._hungry = not leases
        for lease in await self._download_slots.accept(leases):
            slot = self._slots[lease.token] = LeasedSlot(lease)
            self._renewer.add(slot)
            self._serve(slot)
            if self._robots is None and self._several and lease.host not in self._opened:
                self._opened.add(lease.host)
                self._tasks.spawn(self._download_slots.open_all(lease.host))
        self._wake(0.0)

    async def _learn(self, slot: LeasedSlot, request: Request, robots: ScrapyRobots) -> None:
        """Fetch the rules of a host, or release it."""
        try:
            if not await robots.learn(slot, request):
                await self._release_queue(slot)
        finally:
            self._end_learning(slot)

    async def _fetch_redirected(self, slot: LeasedSlot, visit: Visit) -> None:
        """Make a visit that fetches another host's robots.txt."""
        try:
            wait = None if self._robots is None else await self._robots.fetch_redirected(slot, visit)
            if visit in slot.queue and (wait is None or not wait.lease_ended):
                slot.queue.remove(visit)
                self._outbox.end(slot, visit.excluded("robots.txt of another host"))
            if wait is not None:
                await self._release_queue(slot)
        finally:
            self._end_learning(slot)

    async def _release_queue(self, slot: LeasedSlot) -> None:
        """Release a slot with the visits that Scrapy does not have yet."""
        kept = self._kept(slot)
        slot.queue.clear()
        await self._frontier.release([slot.claim], keep=kept, finished_ago_seconds=slot.finished_ago_seconds)
        self._keep_only(slot)

    def _end_learning(self, slot: LeasedSlot) -> None:
        slot.learning = False
        self._serve(slot)
        self.stir()
        self._wake(max(0.0, slot.gap_seconds))

    async def _tidy(self) -> None:
        """Drop slots that have no more visits to make, or whose lease has expired."""
        for token, slot in list(self._slots.items()):
            if not slot.trusted and slot.queue:
                log.warning("The lease of %s expired: its requests are made again.", slot.lease.host)
                slot.queue.clear()
                self._keep_only(slot)
            if not slot.spent:
                continue
            if not slot.open:
                del self._slots[token]
                self._renewer.drop(slot)
            elif not slot.released and (slot.finished_ago_seconds or 0.0) > _PIPELINE_SECONDS:
                slot.released = True
                await self._frontier.release(
                    [slot.claim], keep=list(slot.open.values()), finished_ago_seconds=slot.finished_ago_seconds
                )

    @property
    def _wait_seconds(self) -> float:
        return _FULL_SECONDS if len(self._unscheduled) else _WAIT_SECONDS

    @property
    def _stuck(self) -> bool:
        """Scrapy takes no request until unscheduled ones are done, so no process may keep their hosts from them."""
        if not len(self._unscheduled) or not self._engine.needs_backout():
            self._full_mono = 0.0
            return False
        self._full_mono = self._full_mono or mono()
        return mono() - self._full_mono > _FULL_SECONDS

    async def _release_all(self) -> None:
        for slot in list(self._slots.values()):
            if slot.queue and slot.request is None and not slot.learning and not is_unscheduled(slot.queue[0]):
                slot.released = True
                await self._release_queue(slot)

    def _kept(self, slot: LeasedSlot) -> list[Visit]:
        """The visits that Scrapy has, or that have finished and are on their way to the store."""
        waiting = {visit.number for visit in slot.queue}
        return [visit for visit in slot.open.values() if visit.number not in waiting]

    def _keep_only(self, slot: LeasedSlot) -> None:
        in_scrapy = {visit.number for other, visit in self._open.values() if other is slot}
        for number in slot.open.keys() - in_scrapy - self._held_back.numbers(slot):
            del slot.open[number]

    async def close(self) -> None:
        self._tasks.cancel()
        for slot in self._slots.values():
            self._renewer.drop(slot)
            if slot.open:
                await self._frontier.release([slot.claim], finished_ago_seconds=slot.finished_ago_seconds)
        self._slots.clear()

    def stop(self) -> None:
        self.stopping = True
        self._frontier.stop_waiting()
        self.stir()

    def stir(self) -> None:
        self._changed.set()

    async def _pause(self) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._wait_seconds):
                await self._changed.wait()
