"""Touch pages of a perpetual crawl: a user or a program reports that they have changed, so they are visited soon.

The one implementation for `shoal touch`, the HTTP API and IndexNow. URLs that the crawl does not know are added if they
are in its scope. Touched pages keep the delay, robots.txt and the back-off of their hosts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from shoal.errors import CrawlEnded, InvalidInput, InvalidUrl
from shoal.frontier import Frontier
from shoal.frontier.signals import Signal, SignalKind, SignalResult
from shoal.model.crawl import Crawl
from shoal.model.crawl_spec import CrawlSpec
from shoal.model.visit import Visit
from shoal.operations.seeds import seed_url_without_login
from shoal.operations.start import check_takes_seeds
from shoal.urls.canonical import canonical
from shoal.worker.crawl_context import CrawlContext

MAX_URLS = 1000
_REASONS = {
    SignalResult.IGNORED: "signals about this host are rarely right",
    SignalResult.FULL: "too many touched pages are waiting; retry later",
}


class Touched(msgspec.Struct, frozen=True, kw_only=True):
    """The result of touching URLs."""

    touched: Annotated[int, Meta(description="Pages of the crawl that are visited soon.")]
    new: Annotated[int, Meta(description="URLs that were new to the crawl and were added.")]
    refused: Annotated[dict[str, str], Meta(description="URLs that are not visited, each with the reason.")]


async def touch(
    frontier: Frontier, crawl: Crawl, urls: Sequence[str], kind: SignalKind = SignalKind.TOUCH
) -> Touched:  # fmt: skip
    """Touch URLs, MAX_URLS at most. InvalidInput for a crawl whose pages are not visited again."""
    check_touchable(crawl)
    if len(urls) > MAX_URLS:
        raise InvalidInput(f"{len(urls)} URLs are too many for one call: the limit is {MAX_URLS}.")
    context = CrawlContext(crawl, {}, {})
    refused: dict[str, str] = {}
    # Canonical URL -> the URL as it was given.
    given: dict[str, str] = {}
    for text in urls:
        try:
            given.setdefault(seed_url_without_login(text), text)
        except InvalidUrl as error:
            refused[text[:200]] = str(error)
    results = await _note(frontier, crawl, kind, list(given))
    # Links to a page lose query parameters such as utm_source.
    cleaned = {
        url: clean
        for url, result in results.items()
        if result is SignalResult.UNKNOWN and (clean := canonical(context.cleaned(url)).url) != url
    }
    again = await _note(frontier, crawl, kind, list(dict.fromkeys(cleaned.values())))
    added: dict[str, str] = {}
    touched = 0
    for url, first in results.items():
        clean = cleaned.get(url, url)
        result = again.get(clean, first)
        if result is SignalResult.NOTED:
            touched += 1
        elif result is not SignalResult.UNKNOWN:
            refused[given[url]] = _REASONS.get(result, "not visited again")
        elif reason := context.scope.verdict(canonical(clean)) or context.trap(canonical(clean), time.time()):
            refused[given[url]] = reason
        else:
            added[clean] = given[url]
    new = await _add(frontier, crawl, added, refused)
    return Touched(touched=touched, new=new, refused=refused)


def check_touchable(crawl: Crawl) -> None:
    """Raise InvalidInput or CrawlEnded for a crawl whose pages cannot be touched."""
    check_takes_seeds(crawl)
    if not crawl.perpetual:
        raise InvalidInput(f"Crawl {crawl.id!r} visits each page once: only a crawl with --every can be touched.")
    if CrawlSpec.of(crawl).by_address:
        raise InvalidInput(f"Crawl {crawl.id!r} queues pages by IP address: its pages cannot be touched.")
    if not crawl.state.open:
        raise CrawlEnded(f"Crawl {crawl.id!r} is {crawl.state.value}: its pages are not visited again.")


async def _note(
    frontier: Frontier, crawl: Crawl, kind: SignalKind, urls: Sequence[str]
) -> dict[str, SignalResult]:  # fmt: skip
    """Note the signals in the crawl, and those for URLs that it does not know in its branches."""
    results = dict.fromkeys(urls, SignalResult.UNKNOWN)
    if not urls:
        return results
    for name in [crawl.id, *await frontier.crawls.branches(crawl.id)]:
        unknown = [url for url, result in results.items() if result is SignalResult.UNKNOWN]
        if unknown:
            noted = await frontier.signals.note(name, kind, [Signal(url) for url in unknown])
            results.update(zip(unknown, noted, strict=True))
    return results


async def _add(frontier: Frontier, crawl: Crawl, urls: dict[str, str], refused: dict[str, str]) -> int:
    """Add new URLs, and put those that were refused into `refused`. Returns the number of added URLs."""
    if not urls:
        return 0
    added = await frontier.add(crawl.id, [Visit(url=url, found="other") for url in urls])
    for text, result in zip(urls.values(), added.results, strict=True):
        if not result.in_crawl:
            refused[text] = "a limit of the crawl or a blocked host"
    return added.new
