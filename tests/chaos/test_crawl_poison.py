"""Pages that kill the worker that reads them fail as poison; everything else is crawled as usual.

The supervisor is the real one: it reads the dead worker's note, blames that visit, and starts another worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from shoal.fleet import Event, Supervisor
from shoal.worker import crash_marker
from tests.chaos.crawl import CRAWL, CrawlRun, open_crawl
from tests.site.responses import Response

pytestmark = [pytest.mark.chaos, pytest.mark.full]


def with_attributes(count: int) -> str:
    """One tag with very many attributes, which are compared with one another. A `>` in quotes hides its length."""
    attributes = " ".join(f'a{number}=">"' if number % 100 == 0 else f"a{number}" for number in range(count))
    return f"<!doctype html><p><a {attributes}>x</a>"


@contextlib.asynccontextmanager
async def supervised(crawl: CrawlRun, **settings: object) -> AsyncIterator[tuple[Supervisor, list[Event]]]:
    """Two workers; the settings are of their section `worker`."""
    events: list[Event] = []
    flags = {**crawl.settings, **{f"worker.{name}": value for name, value in settings.items()}}
    supervisor = Supervisor(flags=flags, workers=2, folder=crawl.folder / "run", on_event=events.append)
    await supervisor.start(crawl.frontier)
    try:
        yield supervisor, events
    finally:
        supervisor.kill()
        await supervisor.stop(1.0)


async def until_finished(crawl: CrawlRun, events: list[Event], each: Callable[[], object] = lambda: None) -> None:
    for _ in range(3000):
        if await crawl.finished():
            return
        each()
        await asyncio.sleep(0.02)
    raise AssertionError(f"the crawl does not end: {await crawl.counts()}; {[e for e in events if e.text][-10:]}")


def cpu_seconds_of(pid: int) -> float:
    """CPU time of a process: a worker that waits for a core of a busy machine does not read long."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def deaths(events: list[Event]) -> list[str]:
    return [event.text for event in events if event.kind == "died"]


async def judge(crawl: CrawlRun, poison: str, reason: str, times: int) -> None:
    """The poison has its reason and its number of requests; all other pages are stored once, politely."""
    counts = await crawl.counts()
    assert counts.open == 0
    assert counts.reasons == {f"failed:{reason}": 1}, counts
    assert counts.stored == crawl.tree.pages
    assert {row["url"] for row in crawl.rows() if row["status"] == 200 and row["url"] != poison} == crawl.tree.walk()
    verdict = crawl.site.judge(*crawl.tree.hosts)
    assert not verdict.impolite(crawl.delay_seconds)
    assert verdict.times(poison) == times


async def poisoned(crawl: CrawlRun, response: Response) -> str:
    poison = crawl.site.at(crawl.tree.hosts[0], "/poison", response)
    await crawl.frontier.add(CRAWL, [poison])
    return poison


async def test_a_page_that_takes_too_long_to_parse_fails_as_poison_after_three_workers(tmp_path: Path) -> None:
    async with open_crawl(tmp_path, pages=300, hosts=6, seeds=6, lease_seconds=60.0) as crawl:
        poison = await poisoned(crawl, Response(body=with_attributes(50_000)))
        async with supervised(crawl, parse_seconds=1) as (_, events):
            await until_finished(crawl, events)
        assert len(deaths(events)) == 3, deaths(events)
        assert all("SIGPROF" in text for text in deaths(events)), deaths(events)
        await judge(crawl, poison, "poison", 3)


@pytest.mark.smoke
async def test_a_page_whose_workers_are_killed_externally_fails_as_poison_after_three(tmp_path: Path) -> None:
    async with open_crawl(tmp_path, pages=200, hosts=4, seeds=4, lease_seconds=60.0) as crawl:
        # Long enough to be seen in the crash marker, like a process that the kernel kills for lack of memory.
        poison = await poisoned(crawl, Response(body=with_attributes(30_000)))
        run = crawl.folder / "run"
        async with supervised(crawl) as (supervisor, events):
            seen: dict[str, tuple[tuple[str, int], float]] = {}

            def kill_who_reads_long() -> None:
                for note in run.glob("*.crash"):
                    process = supervisor._running.get(note.stem)
                    what = crash_marker.read(note)
                    # It may end by itself between any two of these lines.
                    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                        if process is None or not what[0]:
                            seen.pop(note.stem, None)
                            continue
                        cpu_seconds = cpu_seconds_of(process.pid)
                        before, start_seconds = seen.setdefault(note.stem, (what, cpu_seconds))
                        if before != what:
                            seen[note.stem] = what, cpu_seconds
                        elif cpu_seconds - start_seconds > 0.2:
                            os.kill(process.pid, signal.SIGKILL)

            await until_finished(crawl, events, kill_who_reads_long)
        assert len(deaths(events)) == 3, deaths(events)
        await judge(crawl, poison, "poison", 3)


async def test_a_page_that_exhausts_memory_when_parsed_fails_alone(tmp_path: Path) -> None:
    async with open_crawl(tmp_path, pages=200, hosts=4, seeds=4, lease_seconds=60.0) as crawl:
        poison = await poisoned(crawl, Response(body="<p>\u4e2d</p>" * 900_000))
        async with supervised(crawl, memory=170_000_000) as (_, events):
            await until_finished(crawl, events)
        counts = await crawl.counts()
        assert counts.failed == 1, counts
        (reason,) = counts.reasons
        times = crawl.site.judge(crawl.tree.hosts[0]).times(poison)
        # It may cost its readers their lives, or only be too much for them.
        assert times <= 3
        await judge(crawl, poison, reason.removeprefix("failed:"), times)


async def test_a_page_that_exhausts_memory_when_fetched_fails_alone(tmp_path: Path) -> None:
    async with open_crawl(
        tmp_path, pages=200, hosts=4, seeds=4, lease_seconds=60.0, policy={"body_bytes": 300_000_000}
    ) as crawl:
        poison = await poisoned(crawl, Response(size=200_000_000))
        async with supervised(crawl, memory=300_000_000) as (_, events):
            await until_finished(crawl, events)
        counts = await crawl.counts()
        assert counts.failed == 1, counts
        (reason,) = counts.reasons
        await judge(crawl, poison, reason.removeprefix("failed:"), crawl.site.judge(crawl.tree.hosts[0]).times(poison))
