"""The calendar of perpetual crawls: when a page is due, which pages go first, and what a budget allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.errors import InvalidLimit, InvalidVisit
from shoal.frontier import Frontier, dump, load
from shoal.frontier.shards import Shards
from shoal.model import Limits, Outcome, OutcomeCode, State, Visit
from shoal.model.page_history import PageHistory
from shoal.store import Store
from tests.contract.fleet import Fleet, drain, end, names, paths

HOST = "a.example"


def after(seconds: float, rate: int = 100) -> Callable[[Visit], Outcome]:
    def how(visit: Visit) -> Outcome:
        visits = visit.history.visits + 1 if visit.history else 1
        return visit.scheduled(
            PageHistory(rate_mean=rate, rate_precision=9, visits=visits, text_hash=b"abcde"), seconds
        )

    return how


async def start(fleet: Fleet, pages: int = 3, *, delay: float = 0, budget: str = "", every: str = "1h") -> Frontier:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=delay, every=every, budget=budget))
    await ann.add("c", paths(HOST, pages))
    return ann


async def test_a_page_is_leased_with_its_history_when_it_is_due_and_not_before(fleet: Fleet) -> None:
    ann = await start(fleet)
    first = await drain(fleet, ann, how=after(3600))
    assert len(first) == 3
    assert all(visit.history is None and not visit.is_revisit for visit in first)
    await fleet.check()
    assert await ann.lease() == []
    upcoming = await ann.calendar.upcoming("c")
    assert upcoming.pages == 3
    # A bucket is a 64th of the interval wide, and opens at its start.
    assert upcoming.seconds is not None
    assert 3600 * 63 / 64 - 60 < upcoming.seconds <= 3600
    fleet.clock.tick(3600 * 0.97)
    assert await ann.lease() == []
    fleet.clock.tick(3600 * 0.03)
    again = await drain(fleet, ann, how=after(3600))
    assert sorted(visit.url for visit in again) == sorted(paths(HOST, 3))
    assert all(visit.history and visit.history.visits == 1 and visit.is_revisit for visit in again)
    assert {(visit.priority, visit.found, visit.retries) for visit in again} == {(0, "link", 0)}
    await fleet.check()
    fleet.clock.tick(3600)
    third = await drain(fleet, ann, how=after(3600))
    assert [visit.history.visits for visit in third if visit.history] == [2, 2, 2]
    assert (await ann.crawls.count("c")).stored == 3


async def test_a_perpetual_crawl_is_not_finished_until_it_is_stopped(fleet: Fleet) -> None:
    ann = await start(fleet)
    await drain(fleet, ann, how=after(3600))
    assert not await ann.crawls.finished("c")
    assert not await ann.crawls.finish("c")
    await ann.crawls.stop("c")
    assert await ann.crawls.finished("c")
    assert (await ann.calendar.upcoming("c")).pages == 0
    fleet.clock.tick(4000)
    assert await ann.lease() == []
    assert not {key for key in await fleet.keys() if key.startswith(("due", "calendar", "rates"))}


async def test_new_pages_take_precedence_over_revisits_regardless_of_priority(fleet: Fleet) -> None:
    ann = await start(fleet, 0)
    await ann.add("c", [Visit(url=f"http://{HOST}/{n}", priority=7) for n in range(3)])
    await drain(fleet, ann, how=after(60))
    fleet.clock.tick(61)
    await ann.add("c", [Visit(url=f"http://{HOST}/new{n}", priority=-5) for n in range(3)])
    made = await drain(fleet, ann, how=after(60), visits=2)
    assert names(made)[:3] == ["new0", "new1", "new2"]
    assert {visit.priority for visit in made if visit.history} == {7}
    await fleet.check()


@pytest.mark.full
async def test_revisits_get_a_share_of_the_requests_of_a_host(fleet: Fleet) -> None:
    # A request each second, a quarter of them for revisits.
    ann = await start(fleet, 200, delay=1, budget="25%", every="1s")
    made: Counter[int] = Counter()
    while len(made) < 1000:
        leases = await ann.lease(visits=1)
        made[fleet.clock.ms // 100_000] += sum(visit.history is not None for lease in leases for visit in lease.visits)
        await end(ann, leases, after(1))
        if fleet.clock.ms - 1_700_000_000_000 > 1_400_000:
            break
        fleet.clock.tick(0.5)
    await fleet.check()
    last = [made[number] for number in sorted(made)[-6:-1]]
    assert all(24 <= count <= 26 for count in last), made


async def test_the_budget_of_revisits_is_kept_after_a_long_pause(fleet: Fleet) -> None:
    ann = await start(fleet, 100, budget="60/h", every="1h")
    await drain(fleet, ann, how=after(3600))
    # For two days no worker runs; then all pages are due at once.
    fleet.clock.tick(2 * 86400)
    made = 0
    for _ in range(60):
        made += len(await end(ann, await ann.lease(visits=50), after(3600)))
        fleet.clock.tick(60)
    assert 58 <= made <= 63
    await fleet.check()


async def test_the_pages_of_a_host_are_counted_by_rate_class(fleet: Fleet) -> None:
    ann = await start(fleet, 4, delay=2)
    await drain(fleet, ann, how=after(60, rate=100))
    pages = await ann.calendar.host("c", HOST)
    assert pages.pages == {25: 4}
    assert pages.pace_seconds >= 2
    fleet.clock.tick(61)
    for lease in await ann.lease(visits=1):
        await end(ann, [lease], after(60, rate=140))
    assert (await ann.calendar.host("c", HOST)).pages == {25: 3, 35: 1}
    fleet.clock.tick(61)
    await drain(fleet, ann, how=lambda visit: visit.excluded("gone"))
    assert (await ann.calendar.host("c", HOST)).pages == {}
    assert (await ann.crawls.count("c")).excluded == 4
    assert (await ann.crawls.count("c")).stored == 0
    await fleet.check()


async def test_a_revisit_that_is_retried_or_whose_worker_dies_keeps_its_history(fleet: Fleet) -> None:
    ann, bob = await start(fleet, 2), fleet.worker("bob")
    await drain(fleet, ann, how=after(60))
    fleet.clock.tick(61)
    (lease,) = await ann.lease(visits=1)
    await end(ann, [lease], lambda visit: visit.retry(5))
    await bob.lease(visits=1)
    await fleet.worker("admin").reap("bob")
    await fleet.check()
    fleet.clock.tick(6)
    made = await drain(fleet, ann, how=after(60))
    assert len(made) == 2
    assert all(visit.history and visit.history.text_hash == b"abcde" for visit in made)
    await fleet.check()


async def test_revisits_of_a_host_that_is_given_up_wait_for_it(fleet: Fleet) -> None:
    ann = await start(fleet, 2)
    await drain(fleet, ann, how=after(60))
    fleet.clock.tick(61)
    (lease,) = await ann.lease(visits=1)
    await ann.add("c", paths(HOST, 1, start=50))
    await ann.release([lease])
    await ann.hosts.postpone(HOST, 100, failed=True, reason="refused", host_failures=1)
    await fleet.check()
    counts = await ann.crawls.count("c")
    assert (counts.failed, counts.waiting) == (1, 2)
    fleet.clock.tick(101)
    assert sorted(names(await drain(fleet, ann, how=after(60)))) == ["0", "1"]


async def test_a_paused_crawl_keeps_its_calendar(fleet: Fleet) -> None:
    ann = await start(fleet)
    await drain(fleet, ann, how=after(60))
    await ann.crawls.pause("c")
    fleet.clock.tick(61)
    assert await ann.lease() == []
    await fleet.check()
    await ann.crawls.resume("c")
    assert len(await drain(fleet, ann, how=after(60))) == 3


async def test_two_perpetual_crawls_of_one_host_have_their_own_calendars(fleet: Fleet) -> None:
    ann = await start(fleet)
    await ann.crawls.create("d", Limits(delay_seconds=0, every="2h"))
    await ann.add("d", paths(HOST, 2))
    await drain(fleet, ann, how=lambda visit: after(60 if visit.crawl == "c" else 120)(visit))
    fleet.clock.tick(61)
    assert {visit.crawl for visit in await drain(fleet, ann, how=after(600))} == {"c"}
    await ann.crawls.stop("c")
    await ann.crawls.delete("c")
    await fleet.check()
    assert (await ann.calendar.upcoming("d")).pages == 2
    fleet.clock.tick(61)
    assert len(await drain(fleet, ann, how=after(600))) == 2
    assert not {key for key in await fleet.keys() if key.startswith(("due", "calendar", "rates")) and ":" in key and
                (await ann.crawls.get("d")).key not in key}  # fmt: skip


@pytest.mark.parametrize("shards", [1, 7])
async def test_a_calendar_is_dumped_and_loaded(fleet: Fleet, tmp_path: Path, shards: int) -> None:
    ann = await start(fleet, 0)
    hosts = fleet.hosts(5, None)
    await ann.add("c", [Visit(url=f"http://{host}/{n}", priority=n % 3 - 1) for host in hosts for n in range(4)])
    await drain(fleet, ann, how=after(600))
    fleet.clock.tick(601)
    # Some are due and wait, some are leased, the others stay in the calendar.
    await end(ann, await ann.lease(hosts=2, visits=2), after(600))
    await ann.lease(hosts=1, visits=2)
    lines = [line async for line in dump(ann.shards)]
    async with await Store.open(folder=tmp_path / "other") as other:
        new = Frontier(await Shards.found(other, "other", shards, fleet.clock), worker="bob")
        await load(new.shards, lines)
        assert (await new.crawls.count("c")).stored == 20
        for host in hosts:
            assert (await new.calendar.host("c", host)).pages == {25: 4}
        fleet.clock.tick(700)
        made: list[Visit] = []
        for _ in range(60):
            made += await end(new, await new.lease(hosts=9, visits=9), after(10**6))
            fleet.clock.tick(5)
        assert sorted(visit.url for visit in made) == sorted(f"http://{h}/{n}" for h in hosts for n in range(4))
        assert all(visit.history for visit in made)
        assert Counter(visit.priority for visit in made) == {-1: 10, 0: 5, 1: 5}


async def test_an_invalid_schedule_is_refused_with_a_suggestion(fleet: Fleet) -> None:
    for limits, what in (
        (Limits(every="daily"), "every is 'daily'"),
        (Limits(every="30d..1h"), "shorter first"),
        (Limits(every="1d", budget="half"), "budget is 'half'"),
        (Limits(budget="20%"), "set every too"),
        (Limits(every="1d", max_pages=5), "max_pages"),
    ):
        with pytest.raises(InvalidLimit, match=what):
            await fleet.worker().crawls.create("x", limits)
    ann = await start(fleet, 1)
    (lease,) = await ann.lease()
    with pytest.raises(InvalidVisit, match="history"):
        await ann.acknowledge(lease, [Outcome(lease.visits[0].number, OutcomeCode.STORED, "", 1.0, b"short")])
    assert (await ann.crawls.get("c")).state is State.RUNNING


async def test_a_scheduled_page_takes_less_than_90_bytes_with_its_fingerprint(fleet: Fleet) -> None:
    """Of hosts with names of 18 characters and paths of 39, as in the benchmarks."""
    ann = await start(fleet, 0)
    hosts = [f"host{number:06d}.example" for number in range(20)]
    urls = [f"http://{hosts[n % 20]}/articles/2026/page-{n:019d}" for n in range(8000)]
    for first in range(0, len(urls), 2000):
        await ann.add("c", urls[first : first + 2000])
        # Intervals differ by up to a third.
        await drain(fleet, ann, how=lambda visit: after(86400 * (1 - hash(visit.url) % 99 / 300))(visit), visits=200)
    assert (await ann.calendar.upcoming("c")).pages == 8000
    total = 0
    for name in await fleet.state():
        if name.partition("}")[2].startswith(("due:", "calendar", "rates:", "names:", "s:")):
            total += await fleet.store.command("MEMORY", "USAGE", name, "SAMPLES", 0, key=name)
    print(f"{total / 8000:.1f} bytes a page")
    assert total / 8000 < 90
