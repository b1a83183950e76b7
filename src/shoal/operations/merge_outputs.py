"""Merges the part files of a crawl's outputs, while the crawl runs and when it is over. Opens no sink."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import partial

from shoal.errors import InvalidInput, SinkError
from shoal.frontier import Frontier
from shoal.frontier.acknowledgement import replay
from shoal.model.crawl import Crawl
from shoal.model.crawl_spec import CrawlSpec
from shoal.sinks import has_parts, is_name, merge, part_names, unmerged


async def merge_outputs(frontier: Frontier, crawl: Crawl, *, named: Mapping[str, str]) -> list[str]:
    """Add finished part files to the outputs of a crawl. Returns the problems, one sentence each.

    `named` are the outputs of the settings by their names.
    """
    problems = []
    changes = {named.get(output, output) for output in CrawlSpec.of(crawl).changes}
    for output in _outputs(crawl, named):
        try:
            if has_parts(output):
                replay_batch = partial(replay, frontier.void_batch)
                live = await _other_machines(frontier)
                spider = bool(crawl.limits.spider) or output in changes
                await merge(output, live=live, replay=replay_batch, spider=spider)
        except (SinkError, InvalidInput) as error:
            problems.append(str(error))
    return problems


def is_merged(crawl: Crawl, *, named: Mapping[str, str]) -> bool:
    """Whether all part files of the crawl's outputs are merged."""
    return not any(map(has_parts, _outputs(crawl, named)))


class UnmergedParts:
    """The parts that the outputs of a crawl had when it ended.

    They have all of its records: a record is in a part before its page counts as stored. Parts that workers open later
    belong to other crawls with the same output.
    """

    def __init__(self, crawl: Crawl, *, named: Mapping[str, str]) -> None:
        self._names = {output: part_names(output) for output in _outputs(crawl, named)}

    def outputs(self) -> dict[str, set[str]]:
        """The outputs that are incomplete, with their parts. Requests that live workers close the parts."""
        left = {output: unmerged(output, names) for output, names in self._names.items() if names}
        self._names = {output: names for output, names in left.items() if names}
        return self._names


async def _other_machines(frontier: Frontier) -> set[str]:
    """The live workers of other machines.

    Workers of this machine are recognized by their locks, which are free at once when a worker is killed; a missing
    heartbeat is noticed only after 30 seconds. The locks of another machine may be invisible on a shared file system.
    """
    here = platform.node()
    return {worker.name for worker in await frontier.workers.alive() if worker.heartbeat.machine != here}


def _outputs(crawl: Crawl, named: Mapping[str, str]) -> list[str]:
    """The outputs by their URIs, without names that only other machines know."""
    outputs = [named.get(output, output) for output in CrawlSpec.of(crawl).all_outputs]
    return [output for output in outputs if not is_name(output)]
