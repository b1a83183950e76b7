"""Merges the part files of a crawl's outputs, while the crawl runs and when it is over. Opens no sink."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from shoal.errors import InvalidInput, SinkError
from shoal.frontier import Frontier
from shoal.frontier.acknowledgement import replay
from shoal.model.crawl import Crawl
from shoal.model.crawl_spec import CrawlSpec
from shoal.sinks import has_parts, is_name, merge


async def merge_outputs(
    frontier: Frontier, crawl: Crawl, *, live: Collection[str], named: Mapping[str, str]
) -> list[str]:
    """Add finished part files to the outputs of a crawl. Returns the problems, one sentence each.

    `live` are the workers that still write, `named` the outputs of the settings by their names.
    """
    problems = []
    for output in _outputs(crawl, named):
        try:
            if has_parts(output):
                ask_store = partial(replay, frontier.void_batch)
                await merge(output, live=live, replay=ask_store, spider=bool(crawl.limits.spider))
        except (SinkError, InvalidInput) as error:
            problems.append(str(error))
    return problems


def is_merged(crawl: Crawl, *, named: Mapping[str, str]) -> bool:
    """Whether no output of the crawl has part files any more."""
    return not any(map(has_parts, _outputs(crawl, named)))


def _outputs(crawl: Crawl, named: Mapping[str, str]) -> list[str]:
    """The outputs by their URIs, without names that only other machines know."""
    outputs = [named.get(output, output) for output in CrawlSpec.of(crawl).outputs]
    return [output for output in outputs if not is_name(output)]
