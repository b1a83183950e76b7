"""The changes that a perpetual crawl has reported, read back from its output of changes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing

from shoal.errors import InvalidInput, SinkError, UnknownCrawl
from shoal.frontier import Frontier
from shoal.model.crawl_spec import CrawlSpec
from shoal.model.record import Item
from shoal.operations.merge_outputs import merge_outputs
from shoal.sinks.reader import read
from shoal.worker.revisits import CHANGES


async def read_changes(frontier: Frontier, crawl_id: str, *, since: float, named: Mapping[str, str]) -> list[Item]:
    """Changes found since this time (seconds since 1970), oldest first, one per visit."""
    crawl = await frontier.crawls.get(crawl_id)
    outputs = CrawlSpec.of(crawl).changes
    if not outputs:
        raise InvalidInput(f"Crawl {crawl_id!r} reports no changes: start it with --every and --changes.")
    await merge_outputs(frontier, crawl, named=named)
    first_error: SinkError | None = None
    for output in outputs:
        # A repeated visit overwrites its row in a database, and has another row in a file.
        changes: dict[tuple[str, str], Item] = {}
        try:
            async with aclosing(read(named.get(output, output), crawl=crawl_id, items=True)) as batches:
                async for rows in batches:
                    for row in rows:
                        if isinstance(row, Item) and row.spider == CHANGES and row.fetched_at >= since:
                            changes[row.key] = row
        except UnknownCrawl:
            pass
        except SinkError as error:
            # A stream cannot be read back, but another output may be readable.
            first_error = first_error or error
            continue
        return sorted(changes.values(), key=lambda item: (item.fetched_at, item.url, item.number))
    assert first_error is not None  # noqa: S101 - every output was tried
    raise first_error
