"""URLs that a crawl has seen are forgotten, or visited again, and counted as what they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import CrawlEnded, InvalidInput
from shoal.frontier import Frontier
from shoal.model import Counts, Limits, Outcome, State, Visit
from shoal.model.crawl_spec import CrawlSpec
from shoal.operations.known_urls import forget, revisit
from tests.contract.fleet import Fleet, drain, end
from tests.contract.test_calendar import after

START = "http://a.example/"
PAGE, GONE = f"{START}page", f"{START}gone"


async def start(worker: Frontier, output: str = "missing.db", **spec: Any) -> None:
    stored = CrawlSpec(seeds=(START,), outputs=(output,), **spec).stored()
    await worker.crawls.create("c", Limits(delay_seconds=0, max_depth=spec.get("max_depth")), spec=stored)
    await worker.add("c", [Visit(url=START, found="seed"), Visit(url=PAGE, depth=1), Visit(url=GONE, depth=1)])


async def again(worker: Frontier, *urls: str) -> int:
    return await revisit(worker, await worker.crawls.get("c"), urls, named={})


async def test_a_stored_page_is_visited_again_and_counted_once(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann)
    await drain(fleet, ann)
    assert await ann.crawls.finish("c")
    assert await again(ann, "a.example/page", PAGE) == 1
    assert (await ann.crawls.get("c")).state is State.RUNNING
    (visit,) = await drain(fleet, ann)
    assert (visit.url, visit.found) == (PAGE, "revisit")
    assert await ann.crawls.count("c") == Counts(admitted=3, stored=3)
    await fleet.check()


async def test_a_crawl_that_finishes_meanwhile_runs_again(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann)
    await drain(fleet, ann)
    running = await ann.crawls.get("c")
    assert await ann.crawls.finish("c")
    assert await revisit(ann, running, [PAGE], named={}) == 1
    assert [visit.url for visit in await drain(fleet, ann)] == [PAGE]
    await fleet.check()


async def test_failed_and_delayed_urls_are_due_now(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann)
    outcomes: dict[str, Callable[[Visit], Outcome]] = {
        START: lambda v: v.stored(),
        PAGE: lambda v: v.retry(900),
        GONE: lambda v: v.failed("status 404"),
    }
    (lease,) = await ann.lease()
    await end(ann, [lease], lambda visit: outcomes[visit.url](visit))
    assert await ann.lease() == []
    assert await again(ann, PAGE, GONE) == 2
    # What waits already stays as it is.
    assert await again(ann, GONE) == 1
    assert sorted(visit.url for visit in await drain(fleet, ann)) == [GONE, PAGE]
    assert await ann.crawls.count("c") == Counts(admitted=3, stored=3)
    await fleet.check()


async def test_a_url_that_cannot_be_visited_again_is_refused_before_anything_changes(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann)
    await drain(fleet, ann)
    before = await ann.crawls.count("c")
    with pytest.raises(InvalidInput, match="has not seen"):
        await again(ann, PAGE, f"{START}never")
    assert await ann.crawls.count("c") == before
    await ann.crawls.stop("c")
    with pytest.raises(CrawlEnded):
        await again(ann, PAGE)
    by_address = CrawlSpec(seeds=(START,), by_address=True).stored()
    crawl = await ann.crawls.create("by-address", Limits(), spec=by_address)
    with pytest.raises(InvalidInput, match="by-address"):
        await revisit(ann, crawl, [START], named={})
    with pytest.raises(InvalidInput, match="again"):
        await forget(ann, crawl, [START])


async def test_a_page_of_a_perpetual_crawl_is_visited_before_it_is_due_and_not_forgotten(fleet: Fleet) -> None:
    ann = fleet.worker()
    crawl = await ann.crawls.create("c", Limits(delay_seconds=0, every="1h"), spec=CrawlSpec(seeds=(START,)).stored())
    await ann.add("c", [START, PAGE])
    await drain(fleet, ann, how=after(3600))
    assert await again(ann, PAGE) == 1
    assert [visit.url for visit in await drain(fleet, ann, how=after(3600))] == [PAGE]
    assert await ann.crawls.count("c") == Counts(admitted=2, stored=2)
    with pytest.raises(InvalidInput, match="revisits its pages"):
        await forget(ann, crawl, [START])
    await fleet.check()


async def test_a_forgotten_url_is_visited_when_it_is_found_again(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann)
    with pytest.raises(InvalidInput, match="waiting"):
        await forget(ann, await ann.crawls.get("c"), [PAGE])
    await drain(fleet, ann)
    crawl = await ann.crawls.get("c")
    await ann.validators.remember("c", [(PAGE, '"tag"')])
    assert (await ann.add("c", [PAGE])).new == 0
    assert await forget(ann, crawl, [PAGE, f"{START}never"]) == 1
    # Workers that remember the link read the new version, and add it again.
    changed = await ann.crawls.get("c")
    assert (changed.version, changed.state) == (crawl.version + 1, State.RUNNING)
    assert await ann.validators.recall("c", [PAGE]) == [""]
    assert (await ann.add("c", [PAGE])).new == 1
    assert [visit.url for visit in await drain(fleet, ann)] == [PAGE]
    await fleet.check()


async def test_the_kind_and_depth_of_a_url_are_read_from_the_output(fleet: Fleet, tmp_path: Path) -> None:
    ann = fleet.worker()
    output = tmp_path / "pages.jsonl"
    output.write_text(json.dumps({"crawl": "c", "url": PAGE, "depth": 1, "status": 200}) + "\n")
    await start(ann, str(output), max_depth=5)
    await drain(fleet, ann, how=lambda visit: visit.excluded("redirect") if visit.url == GONE else visit.stored())
    assert await again(ann, PAGE, GONE) == 2
    made = {visit.url: visit for visit in await drain(fleet, ann)}
    assert (made[PAGE].found, made[PAGE].depth) == ("revisit", 1)
    # It has no row, so it was excluded. Its depth is not known: it leads no further than the limit.
    assert (made[GONE].found, made[GONE].depth) == ("other", 5)
    await fleet.check()
