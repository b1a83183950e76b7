"""The history of crawls and of the fleet: bounded, idempotent, and gone with the crawl."""

from __future__ import annotations

from shoal.frontier.history import Point, Step, Totals, growth
from shoal.frontier.shards import Shards
from shoal.model import Limits, Visit
from shoal.model.crawl import Crawl
from shoal.operations.history import HistoryWriter
from tests.contract.fleet import Fleet, drain

MINUTE = 60
START = 1_800_000_000 // 3600 * 3600


def busy(minute: int) -> Totals:
    """A crawl at 1,000 pages per second."""
    return Totals(60_000 * minute, 900 * minute, 3000 * minute, 2_400_000_000 * minute, 500_000)


async def cost(shards: Shards, crawl: Crawl) -> int:
    prefix = shards.prefixes[shards.home(crawl.id)]
    total = 0
    for kind in ("hm", "hh"):
        key = f"{prefix}{kind}:{crawl.key}"
        total += await shards.store.command("MEMORY", "USAGE", key, "SAMPLES", 0, key=key) or 0
    return total


async def test_the_history_has_at_most_a_day_of_minutes_and_ninety_days_of_hours(fleet: Fleet) -> None:
    ann = fleet.worker()
    crawl = await ann.crawls.create("long")
    for minute in range(1500):
        await ann.history.write(crawl, START + MINUTE * minute, busy(minute))
    by_minute = await ann.history.read(crawl, Step.MINUTE)
    assert len(by_minute) == 1440
    assert by_minute[-1] == Point(START + MINUTE * 1499, busy(1499))
    # The point of an hour is the last one in it.
    by_hour = await ann.history.read(crawl, Step.HOUR)
    assert [point.totals for point in by_hour] == [busy(minute) for minute in (*range(59, 1499, 60), 1499)]
    for hour in range(26, 2300):
        await ann.history.write(crawl, START + 3600 * hour, busy(60 * hour))
    assert len(await ann.history.read(crawl, Step.HOUR)) == 2160
    # What docs/reference/store-keys.md says of the most that a crawl can cost.
    assert await cost(fleet.shards, crawl) < 160_000


async def test_an_hour_of_history_takes_the_bytes_that_the_reference_states(fleet: Fleet) -> None:
    ann = fleet.worker()
    crawl = await ann.crawls.create("hour")
    for minute in range(60):
        await ann.history.write(crawl, START + MINUTE * minute, busy(minute))
    # Redis takes more than Valkey.
    assert await cost(fleet.shards, crawl) < 3000


async def test_a_repeated_minute_replaces_its_point_and_an_older_minute_is_ignored(fleet: Fleet) -> None:
    ann = fleet.worker()
    crawl = await ann.crawls.create("twice")
    assert await ann.history.write(crawl, START, Totals(1)) is None
    assert await ann.history.write(crawl, START + 59, Totals(2)) == Point(START, Totals(1))
    await ann.history.write(crawl, START - MINUTE, Totals(0))
    assert await ann.history.read(crawl, Step.MINUTE) == [Point(START, Totals(2))]
    assert await ann.history.last(crawl) == Point(START, Totals(2))
    assert await ann.history.last(None) is None


async def test_the_history_of_a_crawl_is_deleted_with_it(fleet: Fleet) -> None:
    ann = fleet.worker()
    crawl = await ann.crawls.create("short")
    await ann.history.write(crawl, START, Totals(1))
    await ann.crawls.stop("short")
    await ann.crawls.delete("short")
    for step in Step:
        assert await ann.history.read(crawl, step) == []


async def test_the_fleet_history_is_the_sum_of_its_crawls(fleet: Fleet) -> None:
    ann = fleet.worker()
    writer = HistoryWriter(ann)
    await ann.crawls.create("old", Limits(delay_seconds=0))
    await ann.add("old", [Visit(url=f"http://a.example/{number}") for number in range(5)])
    assert await writer.write_if_due()
    assert not await writer.write_if_due()
    await drain(fleet, ann)
    fleet.clock.tick(MINUTE)
    assert await writer.write_if_due()
    # A crawl that is created and ends between two points counts.
    await ann.crawls.create("brief", Limits(delay_seconds=0))
    await ann.add("brief", [Visit(url="http://b.example/")])
    await drain(fleet, ann)
    await ann.crawls.stop("brief")
    fleet.clock.tick(MINUTE)
    assert await writer.write_if_due()
    points = await ann.history.read(None, Step.MINUTE)
    assert [(point.totals.stored, point.totals.open) for point in points] == [(0, 5), (5, 0), (6, 0)]
    assert [grown.stored for grown in growth(points)] == [5, 1]
    # It was written after its end, and is not written any more some minutes later.
    brief = await ann.crawls.get("brief")
    before = await ann.history.read(brief, Step.MINUTE)
    fleet.clock.tick(10 * MINUTE)
    await writer.write_if_due()
    assert await ann.history.read(brief, Step.MINUTE) == before
    assert before[-1].totals.stored == 1


def test_totals_that_decreased_do_not_count_as_growth() -> None:
    points = [Point(0, Totals(10, 1)), Point(60, Totals(4, 1)), Point(180, Totals(64, 3))]
    assert [(grown.at, grown.seconds, grown.stored, grown.failed) for grown in growth(points)] == [
        (60, 60, 0, 0),
        (180, 120, 60, 2),
    ]
