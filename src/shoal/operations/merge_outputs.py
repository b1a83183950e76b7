"""Files that workers write in parts, put together while a crawl runs and when it is over. Opens no sink."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from shoal.errors import InvalidInput, SinkError
from shoal.frontier import Frontier
from shoal.frontier.acknowledgement import replay
from shoal.model.crawl import Crawl
from shoal.model.crawl_spec import CrawlSpec
from shoal.sinks import gather, has_parts, is_name


async def gather_outputs(
    frontier: Frontier, crawl: Crawl, *, live: Collection[str], named: Mapping[str, str]
) -> list[str]:
    """Make visible what workers have finished; `live` are those that still write, `named` outputs by their names.

    Returns what is in the way, a sentence each.
    """
    troubles = []
    for output in _outputs(crawl, named):
        try:
            if has_parts(output):
                settle = partial(replay, frontier.void_batch)
                await gather(output, live=live, replay=settle, spider=bool(crawl.limits.spider))
        except (SinkError, InvalidInput) as error:
            troubles.append(str(error))
    return troubles


def is_gathered(crawl: Crawl, *, named: Mapping[str, str]) -> bool:
    """Whether nothing of its files is in parts any more."""
    return not any(map(has_parts, _outputs(crawl, named)))


def _outputs(crawl: Crawl, named: Mapping[str, str]) -> list[str]:
    """A name that only other machines know is none of ours."""
    outputs = [named.get(output, output) for output in CrawlSpec.of(crawl).outputs]
    return [output for output in outputs if not is_name(output)]
