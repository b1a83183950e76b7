"""Scrapy's scheduler on the frontier: requests are leased, and acknowledged when Scrapy has finished them.

Scrapy's calls do not wait, but the store takes time. So requests come from a buffer that a background task fills, and
new requests go into a buffer that another task empties. A request is finished when the engine removes it from its slot:
its callback's output is consumed and its items have passed the pipelines. After a crash before that, it is made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.core.scheduler import Scheduler as ScrapyScheduler
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider
from scrapy.http import Response
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from shoal.errors import InvalidUrl, InvalidVisit, ShoalError
from shoal.frontier import Frontier
from shoal.frontier.inspect import store_seconds
from shoal.leases.renewer import LeaseRenewer
from shoal.model.visit import Visit
from shoal.operations.run import finish_if_over
from shoal.operations.scrapy_crawl import spec_of, tag_of
from shoal.scrapy import crawl_join, failed_start, left_to_others, scrapy_redis_settings, spider_arguments
from shoal.scrapy.cookies import Cookies
from shoal.scrapy.crawl_end import CrawlEnd
from shoal.scrapy.download_slots import DownloadSlots
from shoal.scrapy.dupefilter import choose_filter
from shoal.scrapy.error_responses import ErrorResponses
from shoal.scrapy.feeds import Feeds
from shoal.scrapy.in_progress import InProgress
from shoal.scrapy.lease_feed import LeaseFeed
from shoal.scrapy.leased_slot import SLOT, SLOT_SETTINGS
from shoal.scrapy.local_requests import LocalRequests
from shoal.scrapy.old_crawls import remove_old
from shoal.scrapy.outbox import Outbox
from shoal.scrapy.peers import Peers
from shoal.scrapy.request_identity import RequestIdentity, RequestTooLarge, max_request_bytes
from shoal.scrapy.robots import ScrapyRobots
from shoal.scrapy.scrapy_command import is_inspecting
from shoal.scrapy.session import Session
from shoal.scrapy.start_urls import StartUrls
from shoal.scrapy.unscheduled import UnscheduledRequests

if TYPE_CHECKING:
    from shoal.scrapy.import_scrapy_redis import Importer

log = logging.getLogger("shoal.scrapy")
# How long an unavailable store may delay the end of a process. Unacknowledged requests are made again.
_CLOSE_SECONDS = 10.0


class Scheduler(BaseScheduler):
    """SCHEDULER = "shoal.scrapy.Scheduler"."""

    frontier: Frontier
    crawl_id: str

    def __init__(self, crawler: Crawler) -> None:
        self._started_mono = crawl_join.run_started_mono()
        self._crawler = crawler
        self._settings = crawler.settings
        self._session = Session.of(crawler)
        self._filter = choose_filter(crawler)
        self.df = self._filter.filter
        # Requests that the frontier cannot hold: URLs without a host, e.g. file:, and requests that are too large.
        self._local = LocalRequests(crawler, self.df)
        self._left = left_to_others.LeftToOthers(crawler)
        self._pushed: dict[Request, bytes] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._importer: Importer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._start_urls: StartUrls | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if is_inspecting():
            # E.g. `scrapy shell`: use Scrapy's own scheduler, which keeps nothing.
            return ScrapyScheduler.from_crawler(crawler)  # type: ignore[return-value]
        try:
            return cls(crawler)
        except ShoalError as error:
            return failed_start.FailedScheduler(error, crawler)  # type: ignore[return-value]

    def open(self, spider: Spider) -> Deferred[None]:
        return deferred_from_coro(self._open(spider))

    async def _open(self, spider: Spider) -> None:
        try:
            self.frontier = await self._session.join()
            try:
                await self._start(spider)
            except BaseException:
                await self._session.leave()
                raise
        except ShoalError as error:
            failed_start.report(error, self._crawler)
            raise

    async def _start(self, spider: Spider) -> None:
        settings, frontier = self._settings, self.frontier
        self._spider = spider
        for name, effect in scrapy_redis_settings.unused(settings).items():
            log.info("%s has no effect here: %s.", name, effect)
        arguments = spider_arguments.arguments_of(self._crawler)
        name = crawl_join.name_of(spider, settings, arguments)
        self._peers = Peers(frontier, name, spider.name, await store_seconds(frontier))
        since, first = await self._peers.oldest()
        joined = await crawl_join.join(
            frontier, name, scrapy_redis_settings.limits(settings, spider, tag=tag_of(name)),
            flush=settings.getbool("SCHEDULER_FLUSH_ON_START"), since=since, first=first,
            started_mono=self._started_mono, spec=spec_of(name, spider.name, arguments),
        )  # fmt: skip
        self.crawl_id = joined.id
        counts = await frontier.crawls.count(joined.id)
        others = len(await self._peers.others())
        log.info(
            "Crawl %s in %s: %d other processes, %d requests waiting, %d pages done.", joined.id, frontier.store_name,
            others, counts.open, counts.stored,
        )  # fmt: skip
        if counts.open:
            log.info("Resuming crawl (%d requests scheduled)", counts.open, extra={"spider": spider})
        max_bytes = max_request_bytes(settings)
        self._identity = RequestIdentity(spider, self._filter.fingerprint, Cookies(self._crawler), max_bytes)
        self._identity.flat = scrapy_redis_settings.order(settings).flat
        frontier.on_epoch(self._identity.forget)
        self._outbox = Outbox(
            frontier, joined.id, max_bytes, on_added=self._added, on_change=self._changed,
            on_ended=lambda: self._end.reopen(),
        )  # fmt: skip
        self._renewer = LeaseRenewer(self._session.settings, frontier, partial(log.error, "Cannot renew leases: %s"))
        self._renewer.start()
        robots = ScrapyRobots.take_over(frontier, self._crawler, joined.id)
        self._unscheduled = UnscheduledRequests(frontier, joined.limits)
        self._slots = DownloadSlots(frontier, joined.id, scrapy_redis_settings.slots(settings, spider))
        await self._slots.open()
        self._feed = LeaseFeed(
            frontier, tag_of(name), self._identity, self._outbox, robots, self._renewer, self._unscheduled,
            self._slots, self._left, self._crawler.engine, settings, wake=self.wake,
            several=joined.limits.places > 1 or bool(self._slots),
        )  # fmt: skip
        self._end = CrawlEnd(
            frontier, joined, self._feed, self._outbox, self._peers, self._unscheduled, self._left,
            idle_seconds=settings.getint("SCHEDULER_IDLE_BEFORE_CLOSE"), filling=self._filling,
            wake=partial(self.wake, 0.0),
        )  # fmt: skip
        self._feeds = self._feed.feeds = self._outbox.feeds = Feeds(
            self._crawler, frontier, joined, self._feed.is_leased
        )
        await self._feeds.open(spider)
        self._watch_engine()
        opened = self.df.open() if self._filter.decides else None
        if opened is not None:
            await opened
        lease_seconds = self._session.settings.frontier.lease_seconds
        self._leasing = asyncio.ensure_future(self._feed.run())
        work = [
            self._leasing, self._outbox.run(), self._feed.watch(lease_seconds), self._end.run(), self._feeds.run(),
        ]  # fmt: skip
        if settings.getbool("SHOAL_DRAIN"):
            # Imported only here: it can unpickle.
            from shoal.scrapy.import_scrapy_redis import Importer

            self._importer = Importer(spider, settings, frontier, self._outbox, self.push)
            await self._importer.open()
            work.append(self._importer.run())
        self._start_urls = StartUrls.take_over(
            spider, self._crawler, frontier, self._outbox, self.push, lambda: self._end.ended
        )
        if self._start_urls is not None:
            work.append(self._start_urls.run())
        self._cleaning = asyncio.ensure_future(remove_old(frontier, self._session.settings.frontier.keep_days))
        self._tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
        for task in self._tasks:
            task.add_done_callback(self._on_task_done)

    def _watch_engine(self) -> None:
        engine: Any = self._crawler.engine
        engine._slot.inprogress = InProgress(self._feed.ended)
        self._error_responses = ErrorResponses(engine, self._spider)
        # The frontier enforces the delay: Scrapy's slot must not add its own.
        slots = getattr(engine.downloader, "per_slot_settings", None)
        if isinstance(slots, dict):
            slots.setdefault(SLOT, SLOT_SETTINGS)
        for handler, signal in (
            (self._response_downloaded, signals.response_downloaded),
            (self._left_downloader, signals.request_left_downloader),
            (self._spider_error, signals.spider_error),
            (self._response_received, signals.response_received),
            (self._spider_idle, signals.spider_idle),
        ):
            self._crawler.signals.connect(handler, signal=signal)

    def enqueue_request(self, request: Request) -> bool:
        if self._filter.decides and not request.dont_filter and self.df.request_seen(request):
            self.df.log(request, self._spider)
            return False
        if self._importer is not None and not request.dont_filter and self._importer.seen(request):
            self.df.log(request, self._spider)
            return False
        try:
            identified = self._identity.visit(request, pushed=self._pushed.get(request, b""))
        except InvalidUrl:
            self._local.add(request)
            self.wake(0.0)
            return True
        except RequestTooLarge as error:
            if not self._local.add_large(request, error):
                return False
            self._feed.hold_back(request)
            self.wake(0.0)
            return True
        except InvalidVisit as error:
            log.error("Unable to schedule %s: %s", request, error, extra={"spider": self._spider})
            self._crawler.stats.inc_value("scheduler/unserializable")
            return False
        if identified is None:
            self.df.log(request, self._spider)
            return False
        visit, force = identified
        self._feed.outcomes.retries(request)
        self._end.request_added()
        self._outbox.add(visit, force or self._filter.decides, request)
        return True

    def push(self, request: Request, message: bytes) -> None:
        """Enqueue a start URL through the engine. `message` identifies it, so that repeats are one visit."""
        self._pushed[request] = message
        try:
            self._crawler.engine.crawl(request)
        finally:
            del self._pushed[request]

    def next_request(self) -> Request | None:
        if local := self._local.next():
            return local
        request = self._feed.next()
        if request is not None:
            self._count("dequeued")
        return request

    def has_pending_requests(self) -> bool:
        return bool(len(self._local)) or bool(len(self._outbox)) or not self._feed.idle or not self._end.finished

    def __len__(self) -> int:
        """Waiting requests of all processes, as of the last heartbeat."""
        return self._end.waiting

    def close(self, reason: str) -> Deferred[None]:
        return deferred_from_coro(self._close(reason))

    async def _close(self, reason: str) -> None:
        if not self._tasks:
            return
        self._feed.stop()
        with contextlib.suppress(TimeoutError, ShoalError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._outbox.empty()
                await self._cleaning
                # A call for leases may be under way: what it returns is released too.
                await asyncio.wait([self._leasing])
                await self._feed.close()
                await self._feeds.close()
                await self._unscheduled.close()
                if reason == "finished" and not self._settings.getbool("SCHEDULER_PERSIST"):
                    await finish_if_over(self.frontier, self.crawl_id, seeded=True)
                await self.frontier.workers.leave()
                if not await self._peers.others():
                    await self._slots.reset()
        self._cleaning.cancel()
        for task in self._tasks:
            task.remove_done_callback(self._on_task_done)
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._renewer.stop()
        if self._timer is not None:
            self._timer.cancel()
        if self._filter.decides and (closed := self.df.close(reason)) is not None:
            await closed
        await self._session.leave()

    def wake(self, seconds: float) -> None:
        """Let the engine request more work after this time, or sooner."""
        if seconds <= 0:
            self._call_engine()
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        if self._timer is not None and not self._timer.cancelled() and loop.time() < self._timer.when() <= when:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(when, self._call_engine)

    def _call_engine(self) -> None:
        slot = getattr(self._crawler.engine, "_slot", None)
        if slot is not None and slot.closing is None:
            slot.nextcall.schedule()

    def _filling(self) -> bool:
        """Start URLs or imported requests are being added."""
        return any(part is not None and part.busy for part in (self._start_urls, self._importer))

    def _added(self, request: Request, visit: Visit, new: bool, known: bool) -> None:
        if known:
            self._identity.added(visit)
        if new:
            self._count("enqueued")
            return
        self.df.log(request, self._spider)
        self._crawler.signals.send_catch_log(signals.request_dropped, request=request, spider=self._spider)

    def _count(self, event: str) -> None:
        """Count under scrapy-redis' name and under Scrapy's."""
        self._crawler.stats.inc_value(f"scheduler/{event}/redis")
        self._crawler.stats.inc_value(f"scheduler/{event}")

    def _changed(self) -> None:
        self._feed.stir()
        self._end.changed()

    def _response_downloaded(self, response: Response, request: Request) -> None:
        self._peers.pages += 1
        self._feed.answered(request, response)

    def _response_received(self, response: Response, request: Request) -> None:
        """The final response to a request, after all retries."""
        if reason := self._error_responses.reason(response):
            self._feed.fault(request, reason)

    def _spider_idle(self) -> None:
        if self._end.reason:
            raise CloseSpider(self._end.reason)

    def _left_downloader(self, request: Request) -> None:
        self._feed.left(request)

    def _spider_error(self, failure: Failure, response: Any) -> None:
        self._feed.fault(getattr(response, "request", None), f"spider: {type(failure.value).__name__}")

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Close the spider when a background task has failed: without it the process would wait forever."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.critical("Shoal's scheduler failed: %s", error, exc_info=error)
        engine: Any = self._crawler.engine
        if hasattr(engine, "close_spider_async"):
            self._closing = asyncio.ensure_future(engine.close_spider_async(reason="scheduler_error"))
        else:
            engine.close_spider(self._spider, "scheduler_error")
