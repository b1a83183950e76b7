"""Revisit a finished crawl: every page it has, with a conditional request, and new pages.

The frontier stores fingerprints, not URLs: the URLs come from the crawl's own output. Each pass has a number, and a URL
is admitted once in a pass, so a killed pass is resumed from the start of the output. The crawl still knows the pages
that it has seen, so only links to other pages lead to new visits.

The output does not say which method of a spider read which page. So a pass of a crawl with a spider starts where the
spider starts, and each request is made once in the pass.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence, Set
from contextlib import aclosing

import msgspec

from shoal.errors import CrawlEnded, InvalidInput, ShoalError, SinkError, SinkRefused, UnknownCrawl
from shoal.frontier import Frontier
from shoal.frontier.crawl_facts import Feed, FeedState
from shoal.frontier.set_aside import forget_depths
from shoal.model.crawl import NOTHING_LEFT, Crawl
from shoal.model.crawl_spec import CrawlSpec
from shoal.model.record import Record
from shoal.model.visit import Visit, VisitMeta, pass_variant
from shoal.settings import masked
from shoal.sinks.reader import read

COLUMNS = ("crawl", "url", "depth", "redirects", "fetched_at", "error")
# The most failed URLs that are remembered when a pass retries them, so that they are not revisited as well.
_MOST_RETRIED = 1_000_000


async def reopen(
    frontier: Frontier, crawl: Crawl, policy: CrawlSpec, *, named: Mapping[str, str]
) -> tuple[Crawl, frozenset[str]]:
    """Begin a pass over a crawl that is finished; `named` are outputs by their names.

    Returns the crawl, and the URLs that had failed: they are retried, and need no revisit.
    Nothing is changed if the pages of the crawl cannot be read.
    """
    if crawl.why != NOTHING_LEFT:
        raise CrawlEnded(
            f"Crawl {crawl.id!r} ended at its limit ({crawl.why}); pass a higher limit instead of --again."
        )
    if not crawl.limits.spider:
        await _readable(crawl.id, policy, named)
    if crawl.limits.max_urls_per_depth:
        await forget_depths(frontier, crawl)
    await frontier.crawls.facts.start_feed(crawl.id, Feed.PASS)
    retried = frozenset(visit.url for visit, _ in await frontier.crawls.failed(crawl.id, _MOST_RETRIED))
    reopened = await frontier.crawls.resume(crawl.id)
    await frontier.crawls.retry(crawl.id)
    return reopened, retried


async def revisits(
    frontier: Frontier,
    crawl: str,
    policy: CrawlSpec,
    feed: FeedState,
    *,
    named: Mapping[str, str],
    retried: Set[str] = frozenset(),
    first: Sequence[Visit] = (),
) -> AsyncGenerator[list[Visit], None]:
    """The visits of a pass: the pages in the crawl's output, and start URLs that lead elsewhere.

    With a spider, they are the visits that it starts with: `first`, or else the start URLs.
    """
    if policy.spider:
        starts = first or [Visit(url=url, found="seed") for url in policy.seeds]
        yield [_start_again(visit, feed.started) for visit in starts]
        return
    seeds = frozenset(policy.seeds)
    async with aclosing(read(await _readable(crawl, policy, named), crawl=crawl, columns=COLUMNS)) as batches:
        async for records in batches:
            # Rows of this pass are skipped: their pages have been visited, even those that only a link led to.
            pages = {
                row.url: row
                for row in records
                if isinstance(row, Record) and row.fetched_at < feed.started_at and row.url not in retried
            }
            if feed.started > 1:
                await frontier.crawls.forget(crawl, pages, passed=feed.started - 1)
            yield [visit_of_page(page, feed.started, is_seed=page.url in seeds) for page in pages.values()]
    yield [
        Visit(url=url, found="seed", meta=VisitMeta(pass_number=feed.started, seed=True).pack())
        for url in policy.seeds
    ]  # fmt: skip


def _start_again(visit: Visit, number: int) -> Visit:
    variant = f"{pass_variant(number)} {visit.notes.variant}".strip()
    notes = msgspec.structs.replace(visit.notes, pass_number=number, seed=True, variant=variant)
    return msgspec.structs.replace(visit, meta=notes.pack())


def visit_of_page(page: Record, number: int, *, is_seed: bool) -> Visit:
    """The visit of a page in the output, in the pass of this number; 0 for none."""
    notes = VisitMeta(pass_number=number, seed=is_seed, chain=tuple(page.redirects))
    # A row with an error is not that of a stored page.
    return Visit(url=page.url, depth=page.depth, found="other" if page.error else "revisit", meta=notes.pack())


async def _readable(crawl: str, policy: CrawlSpec, named: Mapping[str, str]) -> str:
    """The first output from which the pages of the crawl can be read."""
    first_error: ShoalError | None = None
    for output in (named.get(name, name) for name in policy.outputs):
        try:
            async with aclosing(read(output, crawl=crawl, columns=COLUMNS)) as batches:
                async for _ in batches:
                    return output
        except (SinkError, InvalidInput, UnknownCrawl) as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    shown = ", ".join(map(masked, policy.outputs)) or "no output"
    raise SinkRefused(f"Crawl {crawl!r} cannot be revisited: {shown} has none of its pages.")
