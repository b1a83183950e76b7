"""A worker with a deadline, inside the calling process.

It stops as on SIGTERM, early enough that open requests can finish: when `work` returns, every visit is delivered or
released and no task or connection is left, so the platform may freeze or end the process. If the platform ends it
sooner, leases expire as those of a killed worker do.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import time

import msgspec

from shoal.errors import InvalidInput, ShoalError, StoreNotReady
from shoal.frontier import Frontier
from shoal.operations import check_joining
from shoal.operations.idle import is_idle
from shoal.operations.maintenance import Maintainer
from shoal.settings import Settings
from shoal.spider import installed, load_all
from shoal.worker.spider_runner import SpiderRunner
from shoal.worker.worker import Worker

# Beyond worker.grace_seconds, for outputs to take the last pages and for the store to release the rest.
_RESERVE_SECONDS = 5.0
_CHECK_SECONDS = 0.5
_LEAVE_SECONDS = 1.0


class WorkSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What was done. `idle`: no running crawl has a URL left, so that another call would find nothing to do."""

    pages: int
    requests: int
    bytes: int
    seconds: float
    idle: bool


async def work(settings: Settings, seconds: float, *, until_idle: bool = True) -> WorkSummary:
    """Work on the crawls of the store for at most `seconds`, all of the shutdown included."""
    started_mono = time.monotonic()
    working_seconds = seconds - settings.worker.grace_seconds - _RESERVE_SECONDS
    if working_seconds <= 0:
        raise InvalidInput(
            f"{seconds:g} s is too short: stopping takes worker.grace_seconds ({settings.worker.grace_seconds:g} s) "
            f"plus {_RESERVE_SECONDS:g} s. Allow more time, or lower SHOAL_WORKER_GRACE_SECONDS."
        )
    ends_mono = started_mono + working_seconds
    spiders = load_all({**installed(), **settings.spiders})
    # An unavailable store must not use up the time in which the platform expects a result.
    patient = msgspec.structs.replace(
        settings.store, timeout_seconds=min(settings.store.timeout_seconds, working_seconds)
    )
    settings = msgspec.structs.replace(settings, store=patient)
    async with await Frontier.from_settings(settings) as frontier:
        await check_joining(frontier, platform.node())
        worker = Worker(frontier, settings, spiders=SpiderRunner({"": None, **spiders}), shared=True)
        working = asyncio.create_task(worker.run())
        maintaining = asyncio.create_task(Maintainer(frontier, settings).run())
        idle = False
        try:
            while not working.done() and not (idle and until_idle) and (left := ends_mono - time.monotonic()) > 0:
                await asyncio.wait((working,), timeout=min(_CHECK_SECONDS, left))
                with contextlib.suppress(StoreNotReady):
                    idle = worker.report.idle and await is_idle(frontier, {"", *spiders})
        finally:
            worker.stop()
            maintaining.cancel()
            await asyncio.gather(maintaining, return_exceptions=True)
            await working
        with contextlib.suppress(ShoalError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await frontier.workers.leave()
    report = worker.report
    return WorkSummary(
        pages=report.pages, requests=report.requests, bytes=report.bytes, idle=idle,
        seconds=round(time.monotonic() - started_mono, 3),
    )  # fmt: skip
