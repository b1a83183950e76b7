"""Change the options of a crawl while it is open: patterns, limits, politeness, schedule.

The new options are written to the crawl's home shard and copied to all others; workers read them within a few seconds.
Waiting URLs are checked against new patterns when their turn comes, so no queue has to be searched and an interrupted
change is not half applied. A preview counts these URLs without changing anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shoal.errors import CrawlEnded, InvalidInput, InvalidUrl
from shoal.frontier import Frontier
from shoal.frontier.inspect import waiting_visits
from shoal.frontier.set_aside import readmit
from shoal.model.crawl import Crawl, CrawlKind
from shoal.model.crawl_options import CHANGEABLE, flag_of
from shoal.model.crawl_spec import CrawlSpec
from shoal.operations.start import check_spec
from shoal.urls.canonical import canonical
from shoal.urls.scope import Scope

_RULES = ("allow", "deny", "deny_extensions", "max_depth")
# The most waiting URLs that a preview reads.
_MOST_READ = 100_000


class ChangedCrawl(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a change, or of its preview.

    id        id of the crawl
    changed   names of the options that get a new value
    waiting   number of waiting URLs that were checked
    removed   number of checked URLs that the new patterns or the new depth exclude
    all_read  whether all waiting URLs were checked
    applied   false for a preview
    """

    id: str
    changed: tuple[str, ...]
    waiting: int
    removed: int
    all_read: bool
    applied: bool


async def change(
    frontier: Frontier, crawl_id: str, options: Mapping[str, Any], *, preview: bool = False
) -> ChangedCrawl:
    """Change options of an open crawl. New patterns replace all patterns that it has."""
    crawl = await frontier.crawls.get(crawl_id)
    if crawl.kind not in (CrawlKind.OWN, CrawlKind.BARE):
        raise InvalidInput(f"Crawl {crawl_id!r} is a {crawl.kind.value} crawl: its options cannot be changed here.")
    if not crawl.state.open:
        raise CrawlEnded(f"Crawl {crawl_id!r} is {crawl.state.value}: only a running or paused crawl can be changed.")
    old = CrawlSpec.of(crawl)
    new = _changed(crawl, old, options)
    changed = tuple(name for name in CHANGEABLE if getattr(new, name) != getattr(old, name))
    waiting = removed = 0
    all_read = True
    if set(changed) & set(_RULES):
        waiting, removed, all_read = await _count(frontier, crawl, new)
        new = msgspec.structs.replace(new, revised=True)
    if changed and not preview:
        await frontier.crawls.extend(crawl_id, new.limits(), new.stored())
        await readmit(frontier, crawl_id)
    return ChangedCrawl(
        id=crawl_id, changed=changed, waiting=waiting, removed=removed, all_read=all_read, applied=not preview
    )  # fmt: skip


def _changed(crawl: Crawl, old: CrawlSpec, options: Mapping[str, Any]) -> CrawlSpec:
    for name in options:
        if name not in CHANGEABLE:
            raise InvalidInput(f"{name} cannot be changed: only {', '.join(CHANGEABLE)} can.")
    new = msgspec.structs.replace(old, **options)
    check_spec(new)
    if bool(new.every) != bool(old.every):
        raise InvalidInput(
            f"{flag_of('every')} cannot be added to crawl {crawl.id!r} or removed from it: start a crawl with another "
            "name."
        )
    for name in ("max_pages", "max_pages_per_host", "max_urls_per_depth"):
        before, after = getattr(old, name), getattr(new, name)
        if before != after and (not before or 0 < after < before):
            raise InvalidInput(f"{flag_of(name)} of crawl {crawl.id!r} can be raised, but not lowered or added.")
    return new


async def _count(frontier: Frontier, crawl: Crawl, spec: CrawlSpec) -> tuple[int, int, bool]:
    """The number of waiting URLs read, the number that the new rules exclude, and whether all URLs were read."""
    rules = Scope("any", allow=spec.allow, deny=spec.deny, deny_extensions=spec.deny_extensions)
    read = removed = 0
    for name in [crawl.id, *await frontier.crawls.branches(crawl.id)]:
        async for visit in waiting_visits(frontier, await frontier.crawls.known(name)):
            if read == _MOST_READ:
                return read, removed, False
            read += 1
            try:
                target = canonical(visit.url)
            except InvalidUrl:
                continue
            too_deep = spec.max_depth is not None and visit.depth > spec.max_depth
            removed += too_deep or bool(rules.verdict(target, seed=visit.found == "seed"))
    return read, removed, True
