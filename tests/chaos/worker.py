"""A small crawler on the frontier, as a separate program, to be killed and frozen.

It goes the way every worker goes: lease, fetch one after the other with the host's delay between, add the links, write
the record, acknowledge. A request is only noted, its start and its end, as a web server would note it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import msgspec

from shoal.errors import LeaseLost, StoreFull
from shoal.frontier import mono
from shoal.frontier.frontier import Frontier
from shoal.model import Lease, Visit
from tests.chaos.notes import Notes
from tests.chaos.site import Site

# Between two requests of one lease the holder keeps a little more than the delay, for the sake of coarse clocks.
_CARE = 1.01


class Worker:
    def __init__(self, frontier: Frontier, options: argparse.Namespace) -> None:
        self.frontier = frontier
        self.options = options
        self.site = Site(options.pages, options.hosts)
        self.notes = Notes(options.log)
        self.sink = Notes(options.sink)
        self.held: dict[str, Lease] = {}
        self.stopping = asyncio.Event()

    def note(self, kind: str, *words: str) -> float:
        return self.notes.write(kind, self.frontier.worker, *words)

    async def run(self) -> None:
        renewing = asyncio.create_task(self._renew())
        tasks: set[asyncio.Task[None]] = set()
        while not self.stopping.is_set():
            room = self.options.leases - len(tasks)
            if room > 0:
                leases = await self.frontier.lease(hosts=room, visits=self.options.visits, wait_seconds=0.2)
                for lease in leases:
                    self.note("lease", lease.host, lease.token)
                    self.held[lease.token] = lease
                    tasks.add(asyncio.create_task(self._visit_all(lease)))
                if not leases and not tasks and await self.frontier.crawls.finish(self.options.crawl):
                    self.note("finished")
                    break
            if tasks:
                done, tasks = await asyncio.wait(tasks, timeout=0.05, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        await asyncio.gather(*tasks)
        renewing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await renewing

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self.options.lease_seconds / 3)
            leases = list(self.held.values())
            if not leases:
                continue
            for old, new in zip(leases, await self.frontier.renew(leases), strict=True):
                if new is not None and old.token in self.held:
                    self.held[old.token] = msgspec.structs.replace(old, trusted_until_mono=new.trusted_until_mono)

    async def _visit_all(self, lease: Lease) -> None:
        fetched: list[Visit] = []
        ended: float | None = None
        await asyncio.sleep(self.options.pause)
        for visit in lease.visits:
            if ended is not None:
                await asyncio.sleep(max(0.0, ended + lease.delay_seconds * _CARE - mono()))
            if self.stopping.is_set():
                break
            if mono() >= self.held[lease.token].trusted_until_mono:
                self.note("untrusted", lease.host)
                break
            self.note("start", lease.host, visit.url)
            await asyncio.sleep(self.options.request)
            ended = self.note("end", lease.host, visit.url)
            fetched.append(visit)
        await self._deliver(lease, fetched, ended)
        del self.held[lease.token]

    async def _deliver(self, lease: Lease, fetched: list[Visit], ended: float | None) -> None:
        links = [
            self.site.url(link)
            for visit in fetched
            for link in dict.fromkeys(self.site.links(self.site.page(visit.url)))
        ]
        if links:
            await self._add(links)
        await asyncio.sleep(self.options.delivery)
        for visit in fetched:
            self.sink.write("record", visit.url)
        outcomes = [visit.stored() for visit in fetched]
        if not fetched and not self.stopping.is_set():
            outcomes = [visit.retry(0) for visit in lease.visits]
        ago = None if ended is None else mono() - ended
        try:
            if outcomes:
                await self.frontier.acknowledge(lease, outcomes, finished_ago_seconds=ago)
            if len(outcomes) < len(lease.visits):
                await self.frontier.release([lease], finished_ago_seconds=ago)
                self.note("released", lease.host)
        except LeaseLost:
            self.note("lost", lease.host, lease.token)

    async def _add(self, links: list[str]) -> None:
        while True:
            try:
                await self.frontier.add(self.options.crawl, links)
                return
            except StoreFull:
                await asyncio.sleep(0.05)


async def main(options: argparse.Namespace) -> None:
    frontier = await Frontier.open(
        options.store, worker=options.name, lease_seconds=options.lease_seconds, expiries=200,
        namespace=options.namespace,
    )  # fmt: skip
    async with frontier:
        worker = Worker(frontier, options)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stopping.set)
        worker.note("ready")
        await worker.run()
        # It ends by itself now. Once the loop is closed, a late signal would end it otherwise.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("store", "name", "crawl", "namespace"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("log", "sink"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("pages", "hosts", "leases", "visits"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("lease-seconds", "request", "pause", "delivery"):
        parser.add_argument(f"--{name}", type=float, required=True)
    return parser.parse_args(argv)


if __name__ == "__main__":
    asyncio.run(main(parse(sys.argv[1:])))
