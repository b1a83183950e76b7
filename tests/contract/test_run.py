"""A crawl is over when nothing is open in it or in its branches and nobody feeds it, whoever asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from shoal.frontier import Frontier
from shoal.frontier.crawl_facts import Feed
from shoal.model import CrawlSpec, Limits, State
from shoal.operations.maintenance import Maintainer
from shoal.operations.run import CrawlRun, finish_if_over
from shoal.settings import Settings
from tests.contract.fleet import Fleet, end

Caller = Callable[[Frontier], Awaitable[object]]


async def nobody() -> set[str]:
    return set()


CALLERS: dict[str, Caller] = {
    "finish_if_over": lambda frontier: finish_if_over(frontier, "c"),
    "CrawlRun": lambda frontier: CrawlRun(frontier, "c", outputs={}, others=nobody).finish(),
    "Maintainer": lambda frontier: Maintainer(frontier, Settings()).check(),
}


async def visited(fleet: Fleet) -> Frontier:
    """A worker on a crawl whose only URL has ended."""
    ann = await fleet.join("ann")
    await ann.crawls.create("c", Limits(delay_seconds=0, spider="lister"), spec=CrawlSpec().stored())
    await ann.add("c", ["http://a.example/"])
    await end(ann, await ann.lease(spiders=["lister"]))
    return ann


async def state(frontier: Frontier) -> State:
    return (await frontier.crawls.get("c")).state


@pytest.mark.parametrize("kind", list(Feed))
@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
async def test_a_crawl_that_still_gets_seeds_is_not_over(fleet: Fleet, caller: Caller, kind: Feed) -> None:
    ann = await visited(fleet)
    await ann.crawls.facts.start_feed("c", kind)
    await caller(ann)
    assert await state(ann) is State.RUNNING
    await ann.crawls.facts.finish_feed("c", kind)
    await caller(ann)
    assert await state(ann) is State.FINISHED
    await ann.close()


@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
async def test_a_crawl_with_an_open_branch_is_not_over(fleet: Fleet, caller: Caller) -> None:
    ann = await visited(fleet)
    await ann.add(await ann.crawls.branch("c", "reader"), ["http://b.example/"])
    await caller(ann)
    assert await state(ann) is State.RUNNING
    await end(ann, await ann.lease(spiders=["reader"]))
    await caller(ann)
    assert await state(ann) is State.FINISHED
    await ann.close()


@pytest.mark.parametrize("caller", [CALLERS["finish_if_over"], CALLERS["Maintainer"]], ids=["function", "Maintainer"])
async def test_a_crawl_without_urls_is_given_time_to_get_one(fleet: Fleet, caller: Caller) -> None:
    ann = await fleet.join("ann")
    await ann.crawls.create("c", spec=CrawlSpec().stored())
    await caller(ann)
    assert await state(ann) is State.RUNNING
    # Its creator knows that there is none to come.
    assert await CrawlRun(ann, "c", outputs={}, others=nobody).finish()
    assert await state(ann) is State.FINISHED
    await ann.close()
