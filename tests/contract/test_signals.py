"""Signals that a page has changed: its visit is pulled forward in every state of the page, and never pushed back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.errors import CrawlEnded
from shoal.frontier import Frontier
from shoal.frontier.shards import Shards
from shoal.frontier.signals import Signal, SignalKind, SignalResult
from shoal.model import Limits, Outcome, Visit
from shoal.model.page_history import PageHistory
from shoal.store import Store
from tests.contract.fleet import Clock, Fleet, drain, end, names, paths
from tests.contract.test_calendar import HOST, after, start
from tests.servers import redis_server, server

NOTED, UNKNOWN, IGNORED = SignalResult.NOTED, SignalResult.UNKNOWN, SignalResult.IGNORED


async def touch(ann: Frontier, *urls: str, kind: SignalKind = SignalKind.TOUCH, at: float = 0.0) -> list[SignalResult]:
    return await ann.signals.note("c", kind, [Signal(url, at) for url in urls])


def scheduled(visited_at: float, text: bytes = b"abcde", seconds: float = 3600) -> Callable[[Visit], Outcome]:
    def how(visit: Visit) -> Outcome:
        history = PageHistory(rate_mean=100, rate_precision=9, last_visited=int(visited_at), text_hash=text)
        return visit.scheduled(history, seconds)

    return how


async def test_a_scheduled_page_is_visited_soon_and_the_others_when_they_are_due(fleet: Fleet) -> None:
    ann = await start(fleet, 40)
    await ann.add("c", [Visit(url=f"http://{HOST}/high", priority=7, meta={"n": 1})])
    await drain(fleet, ann, how=after(3600))
    fleet.clock.tick(60)
    assert await touch(ann, f"http://{HOST}/7", f"http://{HOST}/high", f"http://{HOST}/new") == [NOTED, NOTED, UNKNOWN]
    await fleet.check()
    made = await drain(fleet, ann, how=after(3600))
    assert sorted(names(made)) == ["7", "high"]
    assert {visit.url[-4:]: (visit.priority, visit.meta) for visit in made}["high"] == (7, {"n": 1})
    assert all(visit.history and visit.history.visits == 1 for visit in made)
    await fleet.check()
    assert (await ann.calendar.upcoming("c")).pages == 41
    fleet.clock.tick(3600 - 60)
    assert len(await drain(fleet, ann, how=after(36000))) == 39
    await fleet.check()


async def test_a_page_that_is_touched_twice_is_visited_once(fleet: Fleet) -> None:
    ann = await start(fleet)
    await drain(fleet, ann, how=after(3600))
    url = f"http://{HOST}/1"
    assert await touch(ann, url, url) == [NOTED, NOTED]
    fleet.clock.tick(1)
    assert await touch(ann, url) == [NOTED]
    fleet.clock.tick(1)
    assert names(await drain(fleet, ann, how=after(3600))) == ["1"]
    await fleet.check()


async def test_a_page_that_is_already_waiting_is_visited_once(fleet: Fleet) -> None:
    ann = await start(fleet)
    await drain(fleet, ann, how=after(60))
    fleet.clock.tick(61)
    (lease,) = await ann.lease(visits=1)
    waiting = next(url for url in paths(HOST, 3) if url != lease.visits[0].url)
    assert await touch(ann, waiting) == [NOTED]
    fleet.clock.tick(1)
    await end(ann, [lease], after(3600))
    made = await drain(fleet, ann, how=after(3600))
    assert len(made) == 2
    await fleet.check()


async def test_a_page_that_is_being_visited_is_visited_once_more(fleet: Fleet) -> None:
    ann = await start(fleet)
    await drain(fleet, ann, how=after(60))
    fleet.clock.tick(61)
    (lease,) = await ann.lease(visits=3)
    assert await touch(ann, lease.visits[0].url) == [NOTED]
    # The search of the calendar ends without it.
    assert await ann.lease() == []
    fleet.clock.tick(1)
    await end(ann, [lease], after(3600))
    await fleet.check()
    made = await drain(fleet, ann, how=after(3600))
    assert [visit.url for visit in made] == [lease.visits[0].url]
    assert made[0].history is not None
    assert made[0].history.visits == 2
    await fleet.check()


async def test_a_page_can_be_touched_during_its_first_visit(fleet: Fleet) -> None:
    ann = await start(fleet, 1)
    (lease,) = await ann.lease()
    fleet.clock.tick(1)
    assert await touch(ann, lease.visits[0].url) == [NOTED]
    await end(ann, [lease], after(3600))
    assert len(await drain(fleet, ann, how=after(3600))) == 1


async def test_a_page_whose_worker_dies_is_visited_with_its_history(fleet: Fleet) -> None:
    ann, bob = await start(fleet, 2), fleet.worker("bob")
    await drain(fleet, ann, how=after(3600))
    await touch(ann, f"http://{HOST}/0")
    fleet.clock.tick(1)
    assert names([visit for lease in await bob.lease() for visit in lease.visits]) == ["0"]
    await fleet.worker("admin").reap("bob")
    await fleet.check()
    fleet.clock.tick(1)
    (visit,) = await drain(fleet, ann, how=after(3600))
    assert visit.history is not None


async def test_the_visit_of_a_gone_page_is_pulled_forward_unless_the_page_was_dropped(fleet: Fleet) -> None:
    ann = await start(fleet, 2)
    gone = PageHistory(rate_mean=100, rate_precision=9, misses=2, text_hash=b"abcde")
    await drain(
        fleet, ann, how=lambda v: v.scheduled(gone, 9e6) if v.url.endswith("/0") else v.excluded("gone")
    )  # fmt: skip
    assert await touch(ann, *paths(HOST, 2)) == [NOTED, NOTED]
    fleet.clock.tick(1)
    (visit,) = await drain(fleet, ann, how=after(9e6))
    assert visit.history is not None
    assert (visit.url, visit.history.misses) == (f"http://{HOST}/0", 2)
    await fleet.check()
    # A signal for a page that was not found is not kept forever.
    fleet.clock.tick(700)
    await touch(ann, f"http://{HOST}/0")
    await drain(fleet, ann, how=after(9e6))
    assert not {key for key in await fleet.keys() if key.startswith(("touched", "pulled"))}


async def test_a_date_before_the_last_visit_does_not_pull_the_next_visit_forward(fleet: Fleet) -> None:
    ann = await start(fleet, 2)
    await drain(fleet, ann, how=scheduled(1000))
    assert await touch(ann, f"http://{HOST}/0", kind=SignalKind.SITEMAP, at=1000) == [NOTED]
    assert await touch(ann, f"http://{HOST}/1", kind=SignalKind.SITEMAP, at=1001) == [NOTED]
    fleet.clock.tick(1)
    (lease,) = await ann.lease()
    assert names(lease.visits) == ["1"]
    # A date that the visit under way covers does not lead to another one.
    assert await touch(ann, f"http://{HOST}/1", kind=SignalKind.SITEMAP, at=1500) == [NOTED]
    await end(ann, [lease], scheduled(2000))
    assert await drain(fleet, ann) == []
    await fleet.check()


async def test_signals_use_the_budget_of_revisits_and_a_touch_is_served_at_once(fleet: Fleet) -> None:
    ann = await start(fleet, 10, budget="60/h", every="1h")
    await drain(fleet, ann, how=scheduled(1000))
    await touch(ann, *paths(HOST, 10), kind=SignalKind.SITEMAP, at=2000)
    fleet.clock.tick(1)
    assert len(await end(ann, await ann.lease(visits=50), scheduled(3000, seconds=9000))) == 1
    fleet.clock.tick(61)
    assert len(await end(ann, await ann.lease(visits=50), scheduled(3000, seconds=9000))) == 1
    await fleet.check()
    # A touch does not wait for a slot, and other revisits do without it.
    await touch(ann, *paths(HOST, 10))
    fleet.clock.tick(1)
    assert len(await drain(fleet, ann, how=scheduled(4000, seconds=90000))) == 10
    await fleet.check()


async def test_a_host_whose_signals_are_rarely_right_has_its_signals_ignored(fleet: Fleet) -> None:
    ann = await start(fleet, 1)
    other = "b.example"
    await ann.add("c", paths(other, 1))
    await drain(fleet, ann, how=scheduled(0))
    url = f"http://{HOST}/0"
    for number in range(20):
        assert await touch(ann, url, kind=SignalKind.FEED, at=number + 1) == [NOTED]
        fleet.clock.tick(1)
        # One of them is right.
        made = await drain(fleet, ann, how=scheduled(number + 1, b"fghij" if number else b"abcdz"))
        assert len(made) == 1
    assert await ann.signals.precision("c", HOST) == {SignalKind.FEED: (20, 2)}
    # Two of 20 are enough; a twenty-first is not.
    assert await touch(ann, url, kind=SignalKind.FEED, at=50) == [NOTED]
    fleet.clock.tick(1)
    await drain(fleet, ann, how=scheduled(50, b"fghij"))
    assert await ann.signals.precision("c", HOST) == {SignalKind.FEED: (21, 2)}
    results = [(await touch(ann, url, kind=SignalKind.FEED, at=60))[0] for _ in range(40)]
    assert results.count(IGNORED) == 38
    assert results.count(NOTED) == 2
    # Signals of another kind, of another host, and touches of operators are accepted.
    assert await touch(ann, url, kind=SignalKind.SITEMAP, at=60) == [NOTED]
    assert await touch(ann, f"http://{other}/0", kind=SignalKind.FEED, at=60) == [NOTED]
    assert await touch(ann, url) == [NOTED]
    await fleet.check()


async def test_a_large_calendar_is_searched_in_pieces(fleet: Fleet) -> None:
    ann = await start(fleet, 0)
    urls = paths(HOST, 2600)
    await ann.add("c", urls)
    await drain(fleet, ann, visits=200, how=after(3600))
    # Of the pages that one call reads, half leave the bucket.
    picked = urls[::2]
    assert set(await touch(ann, *picked)) == {NOTED}
    fleet.clock.tick(1)
    made = await end(ann, await ann.lease(visits=1), after(90000))
    assert (await ann.calendar.upcoming("c")).pages > 2000
    made += await drain(fleet, ann, how=after(90000), visits=200)
    assert sorted(visit.url for visit in made) == sorted(picked)
    # A signal for a page that the search has passed is found too.
    await touch(ann, urls[-1])
    assert await ann.lease(visits=1) == []
    await touch(ann, urls[1])
    fleet.clock.tick(1)
    assert {visit.url for visit in await drain(fleet, ann, how=after(90000))} == {urls[1], urls[-1]}
    await fleet.check()


async def test_too_many_signals_are_refused_until_some_are_processed(fleet: Fleet) -> None:
    ann = await start(fleet, 0)
    urls = paths(HOST, 2100)
    await ann.add("c", urls)
    results = await touch(ann, *urls)
    assert results.count(NOTED) == 2000
    assert results.count(SignalResult.FULL) == 100
    # The first visits of the pages use up all signals.
    fleet.clock.tick(1)
    assert len(await drain(fleet, ann, how=after(9000), visits=200)) == 2100
    assert await touch(ann, urls[0]) == [NOTED]
    await fleet.check()


async def test_the_signals_of_a_crawl_are_deleted_when_it_ends(fleet: Fleet) -> None:
    ann = await start(fleet)
    await drain(fleet, ann, how=after(3600))
    await touch(ann, *paths(HOST, 2))
    fleet.clock.tick(1)
    await end(ann, await ann.lease(visits=1), after(3600))
    await ann.crawls.stop("c")
    with pytest.raises(CrawlEnded):
        await touch(ann, f"http://{HOST}/1")
    fleet.clock.tick(5000)
    await ann.lease()
    assert not {key for key in await fleet.keys() if key.startswith(("touch", "pulled", "signals", "due"))}
    await ann.crawls.delete("c")
    await fleet.check()


async def test_a_crawl_that_is_not_perpetual_accepts_no_signals(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", paths(HOST, 1))
    assert await touch(ann, f"http://{HOST}/0", f"http://{HOST}/1", "no URL") == [
        SignalResult.ONCE, UNKNOWN, SignalResult.INVALID,
    ]  # fmt: skip
    assert not {key for key in await fleet.keys() if key.startswith("touch")}


async def test_a_store_that_is_rolled_back_keeps_every_page_scheduled(tmp_path: Path) -> None:
    """The store forgets that pages were pulled forward, at each moment of it, and no page loses its next visit."""
    with server(tmp_path / "own", binary=redis_server(), options={"appendonly": "no", "save": ""}) as own:
        async with await Store.open(own.url) as store:
            clock = Clock()
            fleet = Fleet("own", store, await Shards.found(store, "own", 2, clock), clock)
            ann = await start(fleet, 6)
            await drain(fleet, ann, how=after(3600))
            saved = [await _saved(store)]
            await touch(ann, *paths(HOST, 3))
            saved.append(await _saved(store))
            clock.tick(1)
            (lease,) = await ann.lease(visits=2)
            saved.append(await _saved(store))
            await end(ann, [lease], after(3600))
            saved.append(await _saved(store))
            for moment in saved:
                await _roll_back(store, moment)
                await fleet.check()
                clock.tick(8000)
                made = await drain(fleet, ann, how=after(10**6))
                assert {visit.url for visit in made} == set(paths(HOST, 6))
                assert all(visit.history for visit in made)
                await fleet.check()


async def _saved(store: Store) -> dict[str, bytes]:
    names = [name.decode("latin-1") for name in await store.command("KEYS", "*", key="x")]
    return {name: await store.command("DUMP", name, key=name) for name in names}


async def _roll_back(store: Store, saved: dict[str, bytes]) -> None:
    for name in await _saved(store):
        await store.command("DEL", name, key=name)
    for name, value in saved.items():
        await store.command("RESTORE", name, 0, value, key=name)
