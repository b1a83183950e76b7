"""Files that workers write in parts, put together while a crawl runs and when it is over. Opens no sink."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from shoal.errors import InvalidInput, SinkError
from shoal.frontier import Frontier
from shoal.model.crawl import Crawl
from shoal.model.policy import Policy
from shoal.sinks import gather, has_parts
from shoal.worker import receipt


async def gather_outputs(
    frontier: Frontier, crawl: Crawl, *, live: Collection[str], named: Mapping[str, str]
) -> list[str]:
    """Make visible what workers have finished; `live` are those that still write, `named` outputs by their names.

    Returns what is in the way, a sentence each.
    """
    troubles = []
    for output in Policy.of(crawl.spec).outputs:
        try:
            await gather(
                named.get(output, output), live=live, replay=partial(receipt.replay, frontier),
                spider=bool(crawl.limits.spider),
            )  # fmt: skip
        except (SinkError, InvalidInput) as error:
            troubles.append(str(error))
    return troubles


def is_gathered(crawl: Crawl, *, named: Mapping[str, str]) -> bool:
    """Whether nothing of its files is in parts any more."""
    return not any(has_parts(named.get(output, output)) for output in Policy.of(crawl.spec).outputs)
