"""A worker without fetching: crawls generated pages on a store, for `bench/before.py`. Runs on any checkout of Shoal.

    python store_pages.py URL PAGES

Prints `ready` when every script is loaded, starts when it reads a line, and prints `done` and its CPU seconds. Each
page leads to one new page of a random host, so most links lead to other shards.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

from shoal import Done, Frontier, Limits, Visit

_HOSTS = 600
# Leases and visits per lease that a worker delivers at once.
_LEASED, _VISITS = 12, 4
_CRAWL = "pages"


def page(number: int) -> str:
    host = random.Random(number).randrange(_HOSTS)
    return f"https://host{host:06d}.example/articles/2026/page-{number:019d}"


async def crawl(frontier: Frontier, first: int, pages: int) -> int:
    """Visit this many pages; returns the number of the next new page."""
    made = 0
    while made < pages:
        leases = await frontier.lease(hosts=_LEASED, visits=_VISITS)
        found_on = [(lease, visit) for lease in leases for visit in lease.visits]
        links = [Visit(url=page(first + index), depth=1) for index in range(len(found_on))]
        first += len(links)
        made += len(links)
        if _TAKES_PAGES:
            await frontier.add(_CRAWL, links, skip_invalid=True, found_on=found_on)
        else:
            await frontier.add(_CRAWL, links, skip_invalid=True)
        await frontier.acknowledge_all(
            [
                Done(lease=lease, outcomes=[visit.stored() for visit in lease.visits], success=True,
                     response_seconds=0.05)
                for lease in leases
            ]
        )  # fmt: skip
    return first


_TAKES_PAGES = "found_on" in (Frontier.add.__kwdefaults__ or {})


async def main() -> None:
    url, pages = sys.argv[1], int(sys.argv[2])
    async with await Frontier.open(url, namespace="b", batch_seconds=60) as frontier:
        await frontier.crawls.create(_CRAWL, Limits(delay_seconds=0))
        start = 20 * _HOSTS
        for first in range(0, start, 2000):
            await frontier.add(_CRAWL, [page(number) for number in range(first, first + 2000)])
        first = await crawl(frontier, start, 1000)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began = time.process_time()
        await crawl(frontier, first, pages)
        print("done", time.process_time() - began, flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main())
