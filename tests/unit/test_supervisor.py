"""The supervisor with stand-ins for workers: real scripted processes, on a real embedded store."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shoal import Frontier, Limits
from shoal.fleet import Event, Supervisor, live_workers, reclaim
from shoal.fleet import supervisor as supervisor_module
from shoal.fleet.totals import ReportTotals, causes
from shoal.model.worker_report import WorkerReport
from tests.servers import WAIT_SECONDS, alive, wait_until

# Leases as a worker does, writes a crash marker for its visit, and then ends as scripted.
WORKER = """
import os, signal, sys

END = sys.argv[1]
if END == "broken":
    sys.exit(1)
if END == "refuse":
    print("The store is not for me.", file=sys.stderr)
    sys.exit(3)
if END == "babble":
    print("not a report \\x1b[2J")
    print("y" * 3_000_000, file=sys.stderr)
    sys.exit(3)

import asyncio, time
from shoal.frontier import Frontier
from shoal.worker.crash_marker import CrashMarker
from shoal.worker.startup import StartupConfig
from shoal.model.worker_report import WorkerReport

orders = StartupConfig.of(sys.stdin.buffer.readline())

def report(**counts):
    sys.stdout.buffer.write(WorkerReport(worker=orders.name, pid=os.getpid(), **counts).line())
    sys.stdout.buffer.flush()

async def work():
    frontier = await Frontier.open(folder=orders.settings["store.folder"], worker=orders.name)
    leases = await frontier.lease(hosts=1, visits=3)
    if leases:
        CrashMarker(orders.crash_marker, 100).set(leases[0].token, leases[0].visits[0].number)
    report(pages=7, failed={"status 404": 1}, idle=not leases)
    print(f"{orders.name} has {len(leases)} leases", file=sys.stderr, flush=True)
    if not leases or END == "stay":
        sys.stdin.buffer.read()
        os._exit(0)
    if END == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(int(END))

if END == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    report()
    time.sleep(600)
asyncio.run(work())
"""


class Fleet:
    """Supervisors and the events they emit."""

    def __init__(self, folder: Path, frontier: Frontier) -> None:
        self.folder = folder
        self.frontier = frontier
        self.events: list[Event] = []
        self.news = asyncio.Event()
        self.supervisors: list[Supervisor] = []

    def record(self, event: Event) -> None:
        self.events.append(event)
        self.news.set()

    async def start(self, end: str, workers: int = 1) -> Supervisor:
        supervisor = Supervisor(
            flags={"store.folder": str(self.folder / "store")}, workers=workers, folder=self.folder / "workers",
            name="tests", on_event=self.record, program=(sys.executable, "-c", WORKER, end),
        )  # fmt: skip
        self.supervisors.append(supervisor)
        await supervisor.start(self.frontier)
        return supervisor

    def texts(self, kind: str) -> list[str]:
        return [event.text for event in self.events if event.kind == kind]

    async def until(self, kind: str, count: int = 1) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while sum(event.kind == kind for event in self.events) < count:
                self.news.clear()
                await self.news.wait()


@pytest.fixture
async def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    monkeypatch.setattr(supervisor_module, "_FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(supervisor_module, "_SLACK_SECONDS", 0.3)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    async with await Frontier.open(folder=str(tmp_path / "store"), blames=2, shards=2) as frontier:
        await frontier.crawls.create("c", Limits(delay_seconds=0))
        await frontier.add("c", [f"http://a.example/{number}" for number in range(3)])
        fleet = Fleet(tmp_path, frontier)
        yield fleet
        for supervisor in fleet.supervisors:
            supervisor.kill()
            await supervisor.stop(0)


async def test_a_page_that_kills_its_workers_is_blamed_and_the_others_are_not(fleet: Fleet) -> None:
    await fleet.start("kill")
    # Three pages, each read first in turn and blamed twice; then nothing is left to lease, and the worker stays.
    await fleet.until("idle")
    assert (await fleet.frontier.crawls.count("c")).reasons == {"failed:poison": 3}
    died = fleet.texts("died")
    assert len(died) == 6
    assert all("died (killed by SIGKILL); restarting in" in text for text in died)
    # A name is used once.
    assert len({event.worker for event in fleet.events if event.kind == "died"}) == 6


async def test_a_worker_that_exits_cleanly_is_replaced_and_no_page_is_blamed(fleet: Fleet) -> None:
    await fleet.start("0")
    await fleet.until("died", 3)
    counts = await fleet.frontier.crawls.count("c")
    assert counts.failed == 0
    assert "died (exit code 0)" in fleet.texts("died")[0]


async def test_a_nonzero_exit_code_is_a_crash(fleet: Fleet) -> None:
    await fleet.start("9")
    await fleet.until("idle")
    assert (await fleet.frontier.crawls.count("c")).reasons == {"failed:poison": 3}


async def test_a_worker_that_cannot_start_is_not_restarted(fleet: Fleet) -> None:
    supervisor = await fleet.start("refuse", workers=2)
    await supervisor.wait()
    assert fleet.texts("said") == ["The store is not for me."] * 2
    assert [text.partition(" ended ")[2] for text in fleet.texts("gone")] == ["(exit code 3) and is not restarted."] * 2
    assert list((fleet.folder / "workers").iterdir()) == []


async def test_workers_that_never_report_are_given_up(fleet: Fleet) -> None:
    supervisor = await fleet.start("broken")
    await supervisor.wait()
    assert len(fleet.texts("died")) == 4
    assert len(fleet.texts("gone")) == 1


async def test_restart_pauses_double_up_to_a_maximum(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "_LONGEST_PAUSE_SECONDS", 0.05)
    supervisor = await fleet.start("broken")
    await supervisor.wait()
    assert [text.rpartition(" in ")[2] for text in fleet.texts("died")] == ["0.02 s.", "0.04 s.", "0.05 s.", "0.05 s."]


async def test_a_minute_without_crashes_resets_the_restart_pause(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "_HEALTHY_SECONDS", 0.0)
    supervisor = await fleet.start("broken")
    await supervisor.wait()
    assert {text.rpartition(" in ")[2] for text in fleet.texts("died")} == {"0.02 s."}


async def test_reports_of_dead_workers_are_counted(fleet: Fleet) -> None:
    supervisor = await fleet.start("kill")
    await fleet.until("idle")
    total = supervisor.total()
    assert total.pages == 7 * 7
    assert total.failed == {"status 404": 7}
    assert total.idle


async def test_output_that_is_not_a_report_is_passed_on_and_bounded(fleet: Fleet) -> None:
    supervisor = await fleet.start("babble")
    await supervisor.wait()
    texts = fleet.texts("said")
    assert "not a report \x1b[2J" in texts
    assert sum(map(len, texts)) > 3_000_000
    assert max(map(len, texts)) < 1_200_000


async def test_a_worker_that_does_not_stop_is_killed_after_its_grace(fleet: Fleet) -> None:
    supervisor = await fleet.start("deaf", workers=2)
    await fleet.until("report", 2)
    pids = supervisor.pids
    assert len(pids) == 2
    await supervisor.stop(0.1)
    assert not any(map(alive, pids))
    assert supervisor.live_workers == set()
    assert fleet.texts("died") == []


async def test_a_stopped_worker_loses_no_visit(fleet: Fleet) -> None:
    supervisor = await fleet.start("stay")
    await fleet.until("report")
    assert (await fleet.frontier.crawls.count("c")).leased == 3
    supervisor.kill()
    await supervisor.stop(0)
    counts = await fleet.frontier.crawls.count("c")
    assert (counts.waiting, counts.leased, counts.failed) == (3, 0, 0)
    # The test ended the worker: no visit is blamed.
    lease = (await fleet.frontier.lease(wait_seconds=5))[0]
    assert {visit.blames for visit in lease.visits} == {0}


async def test_the_next_supervisor_reclaims_what_a_killed_one_left(fleet: Fleet) -> None:
    supervisor = await fleet.start("stay")
    await fleet.until("report")
    folder = fleet.folder / "workers"
    (name,) = supervisor.live_workers
    assert live_workers(folder) == {name}
    assert await reclaim(fleet.frontier, folder) == 0
    # As if the supervisor were gone: nothing waits for the process.
    for place in supervisor._tasks:
        place.cancel()
    os.kill(supervisor.pids[0], signal.SIGKILL)
    await asyncio.to_thread(wait_until, lambda: not live_workers(folder), "the lock goes with its process")
    assert await reclaim(fleet.frontier, folder) == 1
    assert list(folder.iterdir()) == []
    lease = (await fleet.frontier.lease(wait_seconds=5))[0]
    assert sorted(visit.blames for visit in lease.visits) == [0, 0, 1]


async def test_prestarted_processes_without_work_are_stopped_too(fleet: Fleet) -> None:
    supervisor = Supervisor(
        flags={}, workers=2, folder=fleet.folder / "workers", on_event=fleet.record,
        program=(sys.executable, "-c", WORKER, "stay"),
    )  # fmt: skip
    await supervisor.warm()
    pids = supervisor.pids
    assert len(pids) == 2
    await supervisor.stop(0)
    assert not any(map(alive, pids))
    assert list((fleet.folder / "workers").iterdir()) == []


def test_totals_add_up_counts_but_not_current_values() -> None:
    totals = ReportTotals()
    totals.keep(
        WorkerReport(pages=2, failed={"x": 1}, open_hosts=5, trouble="old", alive_seconds=4, politeness_seconds=3)
    )
    totals.keep(None)
    living = [
        WorkerReport(pages=1, failed={"x": 2, "y": 1}, open_hosts=2, trouble="now", alive_seconds=4, cpu_seconds=4)
    ]
    total = totals.of(living)
    assert (total.pages, total.failed, total.open_hosts, total.trouble) == (3, {"x": 3, "y": 1}, 2, "now")
    assert causes(total) == [("CPU", 0.5), ("politeness", 0.375)]
    assert causes(WorkerReport()) == []


@pytest.mark.parametrize("name", ["", "pod-7", "x" * 64])
def test_each_supervisor_has_a_unique_name(name: str, tmp_path: Path) -> None:
    def named() -> Any:
        return Supervisor(flags={}, workers=1, folder=tmp_path, name=name, on_event=lambda _: None).name

    assert named() != named()
    assert named().startswith(name[:48])
    assert len(named()) < 60
