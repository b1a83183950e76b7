"""Start a crawl, or resume the crawl that has the same name.

Everything is checked before the first write. A crawl keeps the options of its first start, because its frontier was
filled under them. Only its limits can be raised: a crawl that had reached one continues. Other options that differ at a
later start are reported and ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

import msgspec

from shoal.errors import CrawlEnded, CrawlExists, InvalidInput, InvalidLimit, SettingsError, UnknownCrawl
from shoal.frontier import Frontier
from shoal.frontier.inspect import store_seconds
from shoal.frontier.set_aside import readmit
from shoal.model import validation
from shoal.model.crawl import Crawl, CrawlKind, State
from shoal.model.crawl_options import options
from shoal.model.crawl_spec import STORED_SEEDS, CrawlSpec
from shoal.model.visit import Visit
from shoal.operations.locality import check_machine
from shoal.operations.revisit import reopen
from shoal.operations.seeds import without_logins
from shoal.operations.time_windows import time_windows_of
from shoal.politeness.user_agent import check_token, product_token
from shoal.sinks import is_database, is_name
from shoal.urls.scope import Scope

# The limits that a later start can raise. None and 0 mean no limit.
RAISABLE = frozenset(option.attribute for option in options() if option.flag and option.flag.group == "limits")


class StartMode(StrEnum):
    NEW = "new"
    RESUMED = "resumed"
    AGAIN = "again"
    FINISHED = "finished"


class StartedCrawl(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl that was created, resumed or found finished."""

    crawl: Crawl
    # The options that apply to the crawl.
    spec: CrawlSpec
    how: StartMode
    # Options that the caller has set and that differ from those of the crawl.
    differs: tuple[str, ...] = ()
    # URLs that had failed, and are retried in a new pass.
    retried: frozenset[str] = frozenset()
    # Limits that the caller has raised.
    raised: tuple[str, ...] = ()


async def begin(
    frontier: Frontier,
    *,
    name: str,
    seeds: Sequence[str],
    spec: CrawlSpec,
    given: Collection[str] = (),
    again: bool = False,
    named: Mapping[str, str] | None = None,
    visits: Sequence[Visit] = (),
) -> StartedCrawl:
    """Create the crawl `name` with these seeds, or resume the crawl of that name.

    `seeds` are URLs as `seed_url` returns them; `visits` are seeds that have more than a URL: where a spider starts.
    `given` are the options that the caller has set; the others are defaults.
    With `again`, a finished crawl is reopened for another pass over its pages: feed it with `revisit.revisits`.
    `named` are outputs by their names; they are read to find the pages of the crawl.
    """
    validation.crawl_id(name)
    plain_urls, logins = without_logins([*(visit.url for visit in visits), *seeds])
    visits = [
        msgspec.structs.replace(visit, url=url) for visit, url in zip(visits, plain_urls[: len(visits)], strict=True)
    ]  # fmt: skip
    urls = list(dict.fromkeys(plain_urls))
    spec = msgspec.structs.replace(spec, seeds=tuple(urls[:STORED_SEEDS]), logins={**spec.logins, **logins})
    check_spec(spec)
    how = StartMode.NEW
    try:
        crawl = await frontier.crawls.get(name)
        if crawl.state is State.DELETED:
            raise UnknownCrawl(name)
    except UnknownCrawl:
        if not urls:
            raise InvalidInput(f"There is no crawl {name!r} to resume; pass a URL to start one.") from None
        try:
            crawl = await frontier.crawls.create(name, spec.limits(), spec.stored(), reuse=True)
        except CrawlExists:
            crawl = await frontier.crawls.get(name)
            how = StartMode.RESUMED
    else:
        how = StartMode.RESUMED
    check_takes_seeds(crawl)
    stored = CrawlSpec.of(crawl)
    differs = _differing(given, stored, spec) if how is StartMode.RESUMED else ()
    raised = tuple(limit for limit in differs if limit in RAISABLE and _is_higher(limit, spec, stored))
    differs = tuple(option for option in differs if option not in raised)
    if raised and (crawl.state.open or crawl.state is State.FINISHED):
        check_machine(name, stored, spec.machine)
        stored = msgspec.structs.replace(stored, **{limit: getattr(spec, limit) for limit in raised})
        if await _is_over(frontier, crawl, stored):
            raise InvalidInput(
                f"Crawl {name!r} has already reached the new limit; raise it further, or choose another --name."
            )
        crawl = await frontier.crawls.extend(name, stored.limits(), stored.stored())
        await readmit(frontier, name)
    elif crawl.state is State.FINISHED and not again:
        new = [url for url in urls if url not in stored.seeds]
        if new:
            raise InvalidInput(
                f"Crawl {name!r} is finished, and {new[0][:200]!r} is not one of its start URLs; choose another --name."
            )
        return StartedCrawl(crawl=crawl, spec=stored, how=StartMode.FINISHED, differs=differs)
    if not crawl.state.open and crawl.state is not State.FINISHED:
        raise CrawlEnded(f"Crawl {name!r} is {crawl.state.value} and cannot be resumed; choose another name.")
    check_machine(name, stored, spec.machine)
    retried: frozenset[str] = frozenset()
    if crawl.state is State.FINISHED:
        (crawl, retried), how = await reopen(frontier, crawl, stored, named=named or {}), StartMode.AGAIN
    # The stored seeds too: the process that created the crawl may have been killed before it added them.
    visited = {visit.url for visit in visits}
    plain = [Visit(url=url, found="seed") for url in dict.fromkeys([*stored.seeds, *urls]) if url not in visited]
    await frontier.add(name, [*visits, *plain])
    if crawl.state is State.PAUSED:
        crawl = await frontier.crawls.resume(name)
    return StartedCrawl(crawl=crawl, spec=stored, how=how, differs=differs, raised=raised, retried=retried)


def _is_higher(limit: str, spec: CrawlSpec, stored: CrawlSpec) -> bool:
    """Whether a limit was raised. Adding a limit does not count as raising it."""
    new, old = getattr(spec, limit), getattr(stored, limit)
    if limit == "max_depth":
        return old is not None and (new is None or new > old)
    return bool(old) and (not new or new > old)


async def _is_over(frontier: Frontier, crawl: Crawl, spec: CrawlSpec) -> bool:
    """Whether a crawl would end at once under these limits."""
    if spec.max_seconds and await store_seconds(frontier) - crawl.created_at >= spec.max_seconds:
        return True
    if spec.max_bytes and (await frontier.crawls.facts.read(crawl.id)).bytes_received >= spec.max_bytes:
        return True
    return bool(spec.max_pages) and (await frontier.crawls.count(crawl.id)).stored >= spec.max_pages


def check_takes_seeds(crawl: Crawl) -> None:
    """Refuse URLs for a Scrapy crawl: its processes could not tell which callback they are for."""
    if crawl.kind is CrawlKind.SCRAPY:
        raise InvalidInput(
            f"Crawl {crawl.id!r} is a Scrapy crawl, whose URLs come only from its spider; push them to the key that a "
            "RedisSpider reads, or start a crawl with another name."
        )


def check_spec(spec: CrawlSpec) -> None:
    """Raise for options that no worker could apply: numbers, patterns, a user agent that robots.txt cannot name."""
    spec.check()
    time_windows_of(spec.between)
    try:
        check_token(product_token(spec.user_agent))
    except SettingsError as error:
        raise InvalidLimit(f"Invalid user_agent. {error}") from None
    Scope(spec.scope, allow=spec.allow, deny=spec.deny, deny_extensions=spec.deny_extensions)
    # A name is accepted: possibly only workers know its output.
    if spec.changes_have_texts and not any(is_name(output) or is_database(output) for output in spec.changes):
        raise InvalidLimit("change_diffs and keep_versions need a database in changes, e.g. changes.db.")


def _differing(given: Collection[str], stored: CrawlSpec, spec: CrawlSpec) -> tuple[str, ...]:
    """The options that were set and differ from those of the crawl, without seeds, which can be added at any time."""
    return tuple(
        name
        for name in CrawlSpec.__struct_fields__
        if name in given and name != "seeds" and getattr(stored, name) != getattr(spec, name)
    )
