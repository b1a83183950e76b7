"""What the frontier gives this process: leases in, requests out, one after the other on each place of a host.

A background task keeps as many places as Scrapy can use, so that `next` never waits for the store. A place goes back as
soon as its last request has left the downloader, even while items still wait in a pipeline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from scrapy import Request
from scrapy.http import Response
from scrapy.settings import BaseSettings

from shoal.errors import InvalidUrl, ShoalError, StoreCorrupt, StoreHeld, StoreUnavailable
from shoal.frontier import Frontier, mono
from shoal.leases.renewer import LeaseRenewer
from shoal.model.visit import Outcome, Visit
from shoal.politeness.backoff import is_success
from shoal.scrapy.download_slots import DownloadSlots
from shoal.scrapy.downloads import Downloads
from shoal.scrapy.leased_slot import SLOT, LeasedSlot
from shoal.scrapy.outbox import LINGER_SECONDS, Outbox
from shoal.scrapy.request_identity import RequestIdentity
from shoal.scrapy.robots import ScrapyRobots
from shoal.scrapy.unscheduled import UnscheduledRequests, is_unscheduled
from shoal.urls.canonical import canonical

log = logging.getLogger("shoal.scrapy")
_VISITS = 32
# With a full stock of visits, what comes up in so short a time is taken in one call; with none, at once.
_SPACING_SECONDS = 0.05
_WAIT_SECONDS = 1.0
# Items that take longer than this to be stored do not keep the host from being asked.
_PIPELINE_SECONDS = 0.2
# What Scrapy has not asked for so long, because it is full of requests that wait for files, is for others to make.
_FULL_SECONDS = 0.3


class LeaseFeed:
    def __init__(
        self, frontier: Frontier, tag: str, identity: RequestIdentity, outbox: Outbox, robots: ScrapyRobots | None,
        keeper: LeaseRenewer, guests: UnscheduledRequests, slots: DownloadSlots, engine: Any,
        settings: BaseSettings, *, several: bool, wake: Callable[[float], None],
    ) -> None:  # fmt: skip
        self._frontier = frontier
        self._tag = tag
        self._identity = identity
        self._outbox = outbox
        self._robots = robots
        self._keeper = keeper
        self._guests = guests
        self._slots = slots
        self._engine = engine
        self._downloads = Downloads(engine.downloader, self._admit, self._give_up)
        self._full_mono = 0.0
        self._wake = wake
        self._most = settings.getint("CONCURRENT_REQUESTS") or 100
        self._several = several
        self._throttle = _Throttle(settings) if settings.getbool("AUTOTHROTTLE_ENABLED") else None
        self._places: dict[str, LeasedSlot] = {}
        self._open: dict[Request, tuple[LeasedSlot, Visit]] = {}
        self._faults: dict[Request, str] = {}
        self._retried: set[tuple[str, int]] = set()
        self._opened: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()
        self._asked_mono = 0.0
        self.stopping = False
        # The last call gave nothing: perhaps there is nothing more.
        self.hungry = False

    @property
    def idle(self) -> bool:
        """Nothing is in our hands."""
        return not self._open and all(place.spent and not place.open for place in self._places.values())

    def next(self) -> Request | None:
        """A request that may be sent now."""
        soonest = float("inf")
        for place in self._places.values():
            wait = place.free_in_seconds
            if wait > 0 or not place.trusted:
                soonest = min(soonest, wait)
                continue
            visit = place.queue[0]
            if is_unscheduled(visit):
                self._serve(place)
                continue
            if self._robots is not None and not self._robots.knows(place, visit.url):
                place.learning = True
                self._spawn(self._learn(place, visit.url, self._robots))
                continue
            place.queue.popleft()
            try:
                request = self._identity.request(visit)
            except StoreCorrupt as error:
                log.error("%s", error)
                self._outbox.end(place, visit.failed("not a request of this spider"))
                return self.next()
            request.meta.setdefault("download_slot", SLOT)
            request.meta["autothrottle_dont_adjust_delay"] = True
            place.start(request)
            self._open[request] = (place, visit)
            return request
        if soonest != float("inf"):
            self._wake(soonest)
        return None

    def answered(self, request: Request, response: Response) -> None:
        if request in self._open:
            place = self._open[request][0]
            place.status = response.status
            latency = request.meta.get("download_latency")
            if self._throttle is not None and isinstance(latency, float):
                place.adaptive_seconds = self._throttle.delay_seconds(place.delay_seconds, latency, response.status)

    def left(self, request: Request) -> None:
        """It has left the downloader, with an answer or without: the gap begins now."""
        if request not in self._open:
            return
        place = self._open[request][0]
        place.request = None
        latency = request.meta.get("download_latency")
        broken = self._downloads.was_aborted(request)
        place.finish(
            success=None if broken else is_success(place.status) if place.status else False,
            response_seconds=latency if isinstance(latency, float) else None,
        )
        if not place.status:
            self._faults[request] = "no answer"
        self.stir()
        if place.queue:
            self._serve(place)
            self._wake(place.gap_seconds)

    def fault(self, request: Request | None, reason: str) -> None:
        if request in self._open:
            self._faults[request] = reason

    def retries(self, request: Request) -> None:
        """A retry was put in: the visit it repeats has not failed."""
        if times := request.meta.get("retry_times"):
            self._retried.add((request.url, times))

    def ended(self, request: Request) -> None:
        """Scrapy is through with it: its callback is consumed, its items have passed the pipelines."""
        found = self._open.pop(request, None)
        if found is None:
            return
        place, visit = found
        if place.request is request:
            # It never reached the downloader: a middleware had the answer, or would not ask.
            place.request = None
            self._serve(place)
        outcome = self._outcome(request, visit)
        if self._downloads.was_aborted(request):
            # Neither stored nor failed: it waits again when the store has seen that the lease is over.
            place.open.pop(visit.number, None)
        else:
            self._outbox.end(place, visit.stored() if is_unscheduled(visit) else outcome)
        self.stir()

    async def _admit(self, request: Request) -> bool:
        """Let a request through that has a place; one that did not come from here waits for its host's turn."""
        if request in self._open or any(place.request is request for place in self._places.values()):
            return False
        try:
            canonical(request.url)
        except InvalidUrl:
            return False
        await self._guests.wait_turn(request)
        return True

    def _serve(self, place: LeasedSlot) -> None:
        """Let a guest go whose turn it is: Scrapy has asked for it already."""
        while place.queue and is_unscheduled(place.queue[0]):
            wait = place.free_in_seconds
            if wait > 0 or not place.trusted:
                if place.resting:
                    asyncio.get_running_loop().call_later(wait, self._serve, place)
                return
            visit = place.queue.popleft()
            request = self._guests.admit(visit)
            if request is None:
                self._outbox.end(place, visit.excluded("nobody waits for it"))
            else:
                place.start(request)
                self._open[request] = (place, visit)

    def _give_up(self, request: Request) -> None:
        place, visit = self._open.pop(request)
        place.request = None
        place.open.pop(visit.number, None)

    def _outcome(self, request: Request, visit: Visit) -> Outcome:
        reason = self._faults.pop(request, "")
        again = (request.url, request.meta.get("retry_times", 0) + 1)
        if again in self._retried:
            self._retried.discard(again)
            return visit.excluded("retried")
        return visit.failed(reason) if reason else visit.stored()

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self._turn()
            except (StoreUnavailable, StoreHeld) as error:
                log.error("%s Trying again.", error)
                await asyncio.sleep(1.0)

    async def watch(self, lease_seconds: float) -> None:
        """Break off what is under way when its lease is over: somebody else may ask the host a moment later."""
        # A lease is trusted until a tenth of it is left, or five seconds.
        every = min(lease_seconds / 40, 1.0)
        while True:
            await asyncio.sleep(every)
            for place in self._places.values():
                if place.request is not None and not place.trusted:
                    # All of it, also when the store comes back now: the keeper renews it no more.
                    place.lost = True
                    self._downloads.abort(place.request)

    async def _turn(self) -> None:
        await self._tidy()
        spiders = [self._tag, self._guests.tag] if self._guests.active else [self._tag]
        if self._stuck:
            await self._give_back()
            spiders = [self._guests.tag]
        busy = sum(1 for place in self._places.values() if not place.spent and not place.resting)
        room = min(self._most - busy, 4 * self._most - len(self._places))
        if room <= 0 or self._outbox.full:
            await self._pause()
            return
        stock = sum(len(place.queue) for place in self._places.values() if not place.resting)
        ease = _SPACING_SECONDS * min(1.0, stock / self._most)
        self._outbox.linger_seconds = LINGER_SECONDS + ease / 2
        early = self._asked_mono + ease - mono()
        if early > 0:
            await asyncio.sleep(early)
        self._asked_mono = mono()
        leases = await self._frontier.lease(
            hosts=room,
            visits=_VISITS,
            spiders=spiders,
            wait_seconds=0.0 if self.idle and not self.hungry else self._wait_seconds,
        )
        # Asked without waiting first, so that the end of a crawl is seen at once.
        self.hungry = not leases
        for lease in await self._slots.accept(leases):
            place = self._places[lease.token] = LeasedSlot(lease)
            self._keeper.keep(place)
            self._serve(place)
            if self._robots is None and self._several and lease.host not in self._opened:
                self._opened.add(lease.host)
                self._spawn(self._open_places(lease.host))
        self._wake(0.0)

    async def _open_places(self, host: str) -> None:
        """A host has one place until its robots.txt is known. A project that does not ask for it says so here."""
        if not (await self._frontier.hosts.get(host)).robots_known:
            await self._frontier.hosts.set_robots(host)

    async def _learn(self, place: LeasedSlot, url: str, robots: ScrapyRobots) -> None:
        try:
            if not await robots.learn(place, url):
                kept = self._kept(place)
                place.queue.clear()
                await self._frontier.release([place.claim], keep=kept, finished_ago_seconds=place.finished_ago_seconds)
                self._keep_only(place)
        finally:
            place.learning = False
            self._serve(place)
            self.stir()
        self._wake(max(0.0, place.gap_seconds))

    async def _tidy(self) -> None:
        """Let go of places that have nothing more to ask for, or that are not ours any more."""
        for token, place in list(self._places.items()):
            if not place.trusted and place.queue:
                log.warning("The lease of %s is over: its requests are made again.", place.lease.host)
                place.queue.clear()
                self._keep_only(place)
            if not place.spent:
                continue
            if not place.open:
                del self._places[token]
                self._keeper.drop(place)
            elif not place.released and (place.finished_ago_seconds or 0.0) > _PIPELINE_SECONDS:
                place.released = True
                await self._frontier.release(
                    [place.claim], keep=list(place.open.values()), finished_ago_seconds=place.finished_ago_seconds
                )

    @property
    def _wait_seconds(self) -> float:
        """How long to wait for something to happen before looking again."""
        return _FULL_SECONDS if len(self._guests) else _WAIT_SECONDS

    @property
    def _stuck(self) -> bool:
        """Scrapy takes nothing more until guests have had their turn: no host may be kept from them, of any process."""
        if not len(self._guests) or not self._engine.needs_backout():
            self._full_mono = 0.0
            return False
        self._full_mono = self._full_mono or mono()
        return mono() - self._full_mono > _FULL_SECONDS

    async def _give_back(self) -> None:
        for place in list(self._places.values()):
            if place.queue and place.request is None and not place.learning and not is_unscheduled(place.queue[0]):
                kept = self._kept(place)
                place.queue.clear()
                place.released = True
                await self._frontier.release([place.claim], keep=kept, finished_ago_seconds=place.finished_ago_seconds)
                self._keep_only(place)

    def _kept(self, place: LeasedSlot) -> list[Visit]:
        """Of a place's visits those that Scrapy has, or that have ended and are on their way to the store."""
        waiting = {visit.number for visit in place.queue}
        return [visit for visit in place.open.values() if visit.number not in waiting]

    def _keep_only(self, place: LeasedSlot) -> None:
        mine = {visit.number for one, visit in self._open.values() if one is place}
        for number in list(place.open):
            if number not in mine:
                del place.open[number]

    async def close(self) -> None:
        """Give back what was not asked for."""
        for task in self._tasks:
            task.cancel()
        for place in self._places.values():
            self._keeper.drop(place)
            if place.open:
                await self._frontier.release([place.claim], finished_ago_seconds=place.finished_ago_seconds)
        self._places.clear()

    def stop(self) -> None:
        self.stopping = True
        self._frontier.stop_waiting()
        self.stir()

    def stir(self) -> None:
        self._changed.set()

    async def _pause(self) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s", error, exc_info=None if isinstance(error, ShoalError) else error)


class _Throttle:
    """AutoThrottle's rule, for the whole fleet: the delay it gives is the host's."""

    def __init__(self, settings: BaseSettings) -> None:
        self._least = settings.getfloat("DOWNLOAD_DELAY")
        self._most = max(self._least, settings.getfloat("AUTOTHROTTLE_MAX_DELAY"))
        self._first = max(self._least, settings.getfloat("AUTOTHROTTLE_START_DELAY"))
        self._target = settings.getfloat("AUTOTHROTTLE_TARGET_CONCURRENCY")

    def delay_seconds(self, now: float, latency: float, status: int) -> float:
        # Without a delay by response times yet, the host is new to the fleet.
        now = now if now > self._least else self._first
        target = latency / self._target
        delay = min(max(self._least, target, (now + target) / 2), self._most)
        return now if status != 200 and delay <= now else delay
