"""A process that waits for crawls of a project's spiders: `python -m shoal.scrapy` in the project's folder.

`shoal submit --spider NAME -a ARGUMENT=VALUE` creates such a crawl. Every process that waits takes the crawl with the
fewest processes, runs its spider until the crawl is finished, and waits again. Must not run two spiders at once: their
settings would compete for one process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from typing import Any

from scrapy.crawler import CrawlerRunner
from scrapy.settings import Settings
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.log import configure_logging
from scrapy.utils.ossignal import install_shutdown_handlers
from scrapy.utils.reactor import install_reactor

from shoal.errors import SettingsError, ShoalError
from shoal.frontier import Frontier
from shoal.frontier.inspect import crawl_ids
from shoal.model.crawl import Crawl, CrawlKind, State
from shoal.model.heartbeat import Heartbeat
from shoal.operations.scrapy_crawl import VALUES, has_generation
from shoal.scrapy.session import load_settings

log = logging.getLogger("shoal.scrapy")
_POLL_SECONDS = 1.0
_RETRY_SECONDS = 5.0
_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
_SCHEDULER = "shoal.scrapy.Scheduler"
# `kind` of the heartbeat of a process that waits.
KIND = "scrapy standby"


class Standby:
    def __init__(self, runner: CrawlerRunner) -> None:
        self._runner = runner
        self._spiders = set(runner.spider_loader.list())
        self._stopping = asyncio.Event()
        # Crawls that have ended, or that this process has run: those are run again only if requests wait.
        self._ended: set[str] = set()
        self._done: set[str] = set()

    async def run(self) -> None:
        """Wait for crawls and run them, until `stop`."""
        frontier = await Frontier.from_settings(load_settings(self._runner.settings), on_warning=log.warning)
        try:
            log.info("Waiting for crawls of %d spiders in %s.", len(self._spiders), frontier.store_name)
            while not self._stopping.is_set():
                await self._turn(frontier)
        finally:
            await frontier.close()

    def stop(self) -> None:
        """Let a running spider close as on Ctrl-C, and stop waiting."""
        self._stopping.set()
        self._closing = self._runner.stop()

    async def _turn(self, frontier: Frontier) -> None:
        try:
            crawl = await self._next(frontier)
            if crawl is not None:
                await frontier.workers.leave()
                await self._crawl(crawl)
                return
            await frontier.workers.beat(Heartbeat(kind=KIND, owns=False, pid=os.getpid(), machine=platform.node()))
            pause = _POLL_SECONDS
        except ShoalError as error:
            log.error("%s Retrying.", error)
            pause = _RETRY_SECONDS
        await _wait(self._stopping, pause)
        if self._stopping.is_set():
            await frontier.workers.leave()

    async def _crawl(self, crawl: Crawl) -> None:
        self._done.add(crawl.id)
        spider, values = crawl.spec["scrapy_spider"], crawl.spec[VALUES]
        log.info("Running spider %s for crawl %s.", spider, crawl.id)
        try:
            await maybe_deferred_to_future(self._runner.crawl(spider, **values))
        except Exception as error:
            # A spider that cannot be created must not end the process. A failed start is logged already.
            log.error("Spider %s failed for crawl %s: %s", spider, crawl.id, error)

    async def _next(self, frontier: Frontier) -> Crawl | None:
        """The submitted crawl that this process should work on: of the highest priority, with the fewest processes."""
        crawls = []
        for crawl_id in await crawl_ids(frontier):
            if crawl_id in self._ended or not has_generation(crawl_id):
                continue
            crawl = await frontier.crawls.get(crawl_id)
            if not crawl.state.open:
                self._ended.add(crawl_id)
            elif self._can_run(crawl) and await self._has_work(frontier, crawl):
                crawls.append(crawl)
        if not crawls:
            return None
        working = [worker.heartbeat.name for worker in await frontier.workers.alive()]
        return min(
            crawls, key=lambda crawl: (-crawl.limits.priority, working.count(crawl.spec["scrapy"]), crawl.created_at)
        )

    def _can_run(self, crawl: Crawl) -> bool:
        return (
            crawl.kind is CrawlKind.SCRAPY and crawl.state is State.RUNNING
            and isinstance(crawl.spec.get(VALUES), dict) and crawl.spec.get("scrapy_spider") in self._spiders
        )  # fmt: skip

    async def _has_work(self, frontier: Frontier, crawl: Crawl) -> bool:
        counts = await frontier.crawls.count(crawl.id)
        return counts.open > 0 or (not counts.admitted and crawl.id not in self._done)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


def check_settings(settings: Settings) -> None:
    """Raise SettingsError where a submitted crawl could not be found by its spider."""
    if settings.get("SCHEDULER") != _SCHEDULER:
        raise SettingsError(
            f"SCHEDULER is {settings.get('SCHEDULER')!r}: set it to {_SCHEDULER!r} in the project's settings; run this "
            "command in the folder of a Scrapy project."
        )
    if settings.get("SCHEDULER_QUEUE_KEY"):
        raise SettingsError("SCHEDULER_QUEUE_KEY is set: submitted crawls are named by their spider and its arguments.")


def serve(settings: Settings) -> int:
    """Run until SIGINT or SIGTERM. Returns the exit code."""
    check_settings(settings)
    install_reactor(settings.get("TWISTED_REACTOR") or _REACTOR)
    configure_logging(settings)
    from twisted.internet import reactor as installed

    reactor: Any = installed
    failed: list[BaseException] = []

    async def run() -> None:
        standby = Standby(CrawlerRunner(settings))
        install_shutdown_handlers(lambda *_: reactor.callFromThread(standby.stop))
        try:
            await standby.run()
        except ShoalError as error:
            log.critical("%s", error)
            failed.append(error)
        except BaseException as error:
            log.critical("Waiting for crawls failed.", exc_info=error)
            failed.append(error)
        finally:
            reactor.stop()

    reactor.callWhenRunning(lambda: deferred_from_coro(run()))
    reactor.run(installSignalHandlers=False)
    return 1 if failed else 0
