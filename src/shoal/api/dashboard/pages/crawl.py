"""One crawl: its progress, the hosts that it waits for, its records and settings, and the actions on it."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.api.auth import Role
from shoal.api.dashboard.components import (
    button,
    by_reason,
    confirm,
    duration,
    empty,
    facts,
    figures,
    foreign,
    form,
    more,
    note,
    number,
    outside,
    path,
    rate,
    size,
    state,
    table,
    tick,
    timestamp,
)
from shoal.api.dashboard.fleet import CrawlProgress
from shoal.api.dashboard.html import E, Node
from shoal.api.dashboard.pages.change_crawl import change_form
from shoal.api.dashboard.pages.charts import charts
from shoal.api.dashboard.pages.hosts import mean_response
from shoal.api.dashboard.pages.records import first_records
from shoal.api.dashboard.pages.workers import limited_by
from shoal.api.dashboard.view import DashboardPage, View, live
from shoal.api.pagination import make_cursor
from shoal.frontier.failures import FailureCursor
from shoal.frontier.hosts import Host
from shoal.frontier.inspect import PendingHost, hosts_of, store_seconds
from shoal.model.crawl import Crawl, CrawlKind, State
from shoal.model.crawl_options import options
from shoal.model.crawl_spec import CrawlSpec
from shoal.operations.describe import Description, describe

_SECTION = "Crawls"
_FAILED_SHOWN = 100
_HOSTS_SHOWN = 200
_LATEST_SHOWN = 8
_ORDERS = {"": "longest queue first", "slowest": "slowest first"}
# With a reason, at most this many pages of failures are searched for one page that is shown.
_PAGES_SEARCHED = 50
_ACTS = Role.SUBMIT
# Failed URLs of a crawl that was stopped or has expired cannot be retried.
_RETRIABLE = (State.RUNNING, State.PAUSED, State.FINISHED)


async def crawl_page(view: View) -> DashboardPage:
    crawl = await view.crawl()
    # The samples are not in a live part.
    described = await describe(view.frontier, crawl, with_samples=not view.for_updates)
    row = CrawlProgress(crawl, described.counts, view.rates.of(crawl.id, described.counts.stored))
    content: list[Node] = [
        E.h1(crawl.id),
        live("state", E.p(state(described.state, described.why))),
        live("actions", _actions(view, crawl, described), class_="actions"),
        live("waiting", _waiting(described)),
        live("figures", _figures(row, described)),
        await charts(view, crawl),
        await _limit(view, crawl),
        E.div(
            E.section(E.h2("Failures"), live("failures", _failures(view, crawl, described))),
            E.section(E.h2("Exclusions"), live("exclusions", _exclusions(described)), _samples(described)),
            class_="columns",
        ),
        E.h2("Hosts it waits for"),
        live("pending", _pending(described.pending)),
        live("latest", await _latest(view, crawl)),
    ]
    # The remaining parts are not live.
    if not view.for_updates:
        content += [
            E.p(
                "All hosts with waiting URLs: ",
                E.a("longest queue first", href=path("crawls", crawl.id, "hosts")),
                " or ",
                E.a("slowest first", href=path("crawls", crawl.id, "hosts", order="slowest")),
            ),
            E.h2("Records"),
            await first_records(view, crawl),
            _seeds_form(view, crawl),
            E.h2("Settings"),
            change_form(view, crawl, {**msgspec.structs.asdict(described.limits), **described.policy}),
            _settings(described),
        ]
    return DashboardPage(crawl.id, content, _SECTION)


def _actions(view: View, crawl: Crawl, described: Description) -> Node:
    if not view.may(_ACTS):
        return None
    own = path("crawls", crawl.id)
    acts: list[Node] = []
    if crawl.state is State.RUNNING:
        acts.append(button("Pause", f"{own}/pause"))
    if crawl.state is State.PAUSED:
        acts.append(button("Resume", f"{own}/resume", kind="main"))
    if crawl.state.open:
        acts.append(
            confirm(
                "Stop…",
                f"Stop crawl {crawl.id} permanently. Waiting URLs are excluded, and the crawl cannot be resumed.",
                f"{own}/stop", f"Stop crawl {crawl.id}",
            )
        )  # fmt: skip
    elif view.may(Role.ADMIN):
        acts.append(
            confirm(
                "Delete…",
                f"Delete crawl {crawl.id} from the store: its queue, its known URLs and its history. Its records in "
                "the output stay. Only `shoal crawl` can use its name again.",
                f"{own}/delete", f"Delete crawl {crawl.id}",
            )
        )  # fmt: skip
    if described.counts.failed and crawl.state in _RETRIABLE:
        acts.append(button("Retry all failed URLs", f"{own}/retry"))
    if crawl.kind is CrawlKind.OWN:
        acts.append(E.a("Clone as new", href=path("new", like=crawl.id), class_="button"))
    return acts


def _waiting(described: Description) -> Node:
    return [note("warn", text) for text in described.waiting]


def _figures(row: CrawlProgress, described: Description) -> Node:
    counts = described.counts
    values: list[tuple[str, Node]] = [
        ("Pages stored", number(counts.stored)),
        ("Pages per second", rate(row.rate) if row.crawl.state.open else "–"),
        ("Time left", duration(row.eta_seconds)),
        ("Failed", number(counts.failed)),
        ("Excluded", number(counts.excluded)),
        ("Waiting", number(counts.waiting)),
        ("Leased", number(counts.leased)),
        ("Later", number(counts.later)),
        ("Admitted", number(counts.admitted)),
        ("Received", size(described.bytes)),
    ]
    if described.items:
        values.append(("Items", number(described.items)))
    return figures(values)


async def _limit(view: View, crawl: Crawl) -> Node:
    """The bottleneck of the fleet. A token of an application gets no information about the fleet."""
    if view.caller.app or not crawl.state.open:
        return None
    fleet = await view.fleet.read()
    return live("limit", E.p("The workers' time went mostly into: ", E.b(limited_by(fleet.workers)), class_="quiet"))


async def _latest(view: View, crawl: Crawl) -> Node:
    """The last pages, from the workers' heartbeats: to find them in an output, all of it would have to be read."""
    if not crawl.state.open:
        return None
    workers = (await view.fleet.read()).workers
    pages = sorted(
        (page for worker in workers for page in worker.latest if page.crawl == crawl.id),
        key=lambda page: page.fetched_at,
        reverse=True,
    )[:_LATEST_SHOWN]
    rows: list[list[Node]] = [
        [
            E.a(foreign(page.url), href=path("crawls", crawl.id, "records", prefix=page.url)), str(page.status),
            foreign(page.title), timestamp(page.fetched_at),
        ]
        for page in pages
    ]  # fmt: skip
    return [
        E.h2("Latest pages"),
        table("Latest pages", (">URL", "#Status", ">Title", "=Fetched"), rows)
        if rows
        else E.p("No worker has stored a page of this crawl recently.", class_="quiet"),
    ]


def _failures(view: View, crawl: Crawl, described: Description) -> Node:
    if not described.failed:
        return E.p("No URL has failed.", class_="quiet")
    return [
        by_reason(
            "Failures by reason", described.failed, lambda reason: path("crawls", crawl.id, "failed", reason=reason)
        ),
        E.p(E.a("All failed URLs", href=path("crawls", crawl.id, "failed"))),
    ]


def _exclusions(described: Description) -> Node:
    if not described.excluded:
        return E.p("No URL was excluded.", class_="quiet")
    return by_reason("Exclusions by reason", described.excluded)


def _samples(described: Description) -> Node:
    """Not live: which URLs are chosen may differ each time."""
    return [
        E.details(
            E.summary(f"URLs not visited: {reason}"),
            E.ul([E.li(outside(url)) for url in urls]),
        )
        for reason, urls in described.samples.items()
    ]


def _pending(pending: tuple[PendingHost, ...]) -> Node:
    if not pending:
        return E.p("The crawl is not waiting for any host that failed.", class_="quiet")
    rows: list[list[Node]] = [
        [
            E.a(host.host, href=path("hosts", host.host)), "whole host" if host.paused else "some URLs", host.reason,
            duration(host.seconds), number(host.retries),
        ]
        for host in pending
    ]  # fmt: skip
    return table("Hosts it waits for", (">Host", "=Pauses", ">Reason", "#Again in", "#Retries"), rows)


def _seeds_form(view: View, crawl: Crawl) -> Node:
    if not crawl.state.open or not view.may(_ACTS) or crawl.kind is CrawlKind.SCRAPY:
        return None
    return E.details(
        E.summary("Add seeds"),
        form(
            f"{path('crawls', crawl.id)}/seeds", view.proof,
            E.label("URLs, one per line", for_="seeds"),
            E.textarea(name="seeds", id="seeds", required=True),
            E.button("Add", type="submit"),
        ),
    )  # fmt: skip


def _settings(described: Description) -> Node:
    """The settings that differ from their defaults; the others are folded."""
    values = {**msgspec.structs.asdict(described.limits), **described.policy}
    defaults = {option.attribute: option.default for option in options(CrawlSpec)}
    defaults["reach"] = defaults["scope"]
    changed: list[tuple[str, Node]] = []
    usual: list[tuple[str, Node]] = []
    for name in sorted(values):
        value = msgspec.to_builtins(values[name])
        default = msgspec.to_builtins(defaults.get(name))
        (usual if value == default or (not value and not default) else changed).append((name, _shown(value)))
    return [facts(changed), E.details(E.summary(f"{len(usual)} settings with their default"), facts(usual))]


def _shown(value: Any) -> Node:
    if isinstance(value, str):
        return foreign(value) if value else "–"
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return foreign(", ".join(value), 400)
    return foreign(msgspec.json.encode(value).decode())


async def failed_page(view: View) -> DashboardPage:
    """Failed URLs of a crawl, oldest first in each shard."""
    crawl = await view.crawl()
    reason = view.text("reason")
    last: FailureCursor | None = view.cursor(FailureCursor, "failed", crawl.id)
    rows: list[list[Node]] = []
    own = path("crawls", crawl.id)
    acts = view.may(_ACTS) and crawl.state in _RETRIABLE
    for _ in range(_PAGES_SEARCHED):
        visits, last = await view.frontier.crawls.failed_page(crawl.id, _FAILED_SHOWN, last)
        rows += [
            [
                *([tick("urls", visit.url, f"Choose {visit.url[:200]}")] if acts else []),
                outside(visit.url),
                foreign(failure_reason),
                str(visit.depth),
                str(visit.retries + 1),
                *([button("Retry", f"{own}/retry/chosen", name="only", value=visit.url)] if acts else []),
            ]
            for visit, failure_reason in visits
            if not reason or failure_reason == reason
        ]
        if last is None or len(rows) >= _FAILED_SHOWN:
            break
    cursor = make_cursor(last, "failed", crawl.id) if last else ""
    following = path("crawls", crawl.id, "failed", reason=reason, cursor=cursor) if cursor else None
    columns = (
        *(("=Choose",) if acts else ()),
        ">URL",
        ">Reason",
        "#Depth",
        "#Attempts",
        *(("=Retry",) if acts else ()),
    )
    content: list[Node] = [
        _heading(crawl, "Failed URLs"),
        E.p("Reason: ", E.b(foreign(reason)), " · ", E.a("all reasons", href=path("crawls", crawl.id, "failed")))
        if reason
        else None,
        _retries(own, reason) if rows and acts else None,
        table("Failed URLs", columns, rows) if rows else empty(_no_failures(reason, following)),
        more(following),
    ]  # fmt: skip
    return DashboardPage(f"Failed URLs of {crawl.id}", content, _SECTION)


def _retries(own: str, reason: str) -> Node:
    of_reason = button(
        f"Retry all that failed with: {reason}", f"{own}/retry/reason", name="reason", value=reason
    ) if reason else None  # fmt: skip
    return E.div(
        button("Retry the selected URLs", f"{own}/retry/chosen", kind="main"), of_reason,
        button("Retry all failed URLs", f"{own}/retry"), class_="actions",
    )  # fmt: skip


def _no_failures(reason: str, following: str | None) -> str:
    if not reason:
        return "No URL has failed."
    return "None so far with this reason." if following else "No URL has failed for this reason."


async def hosts_page(view: View) -> DashboardPage:
    """Hosts with waiting URLs of a crawl, the longest queue or the slowest first."""
    crawl = await view.crawl()
    order = view.text("order", *_ORDERS)
    hosts: list[tuple[int, Host]] = []
    async for name, lengths in hosts_of(view.frontier, crawl.key, crawl.limits.spider, _HOSTS_SHOWN):
        hosts.append((sum(lengths.values()), await view.frontier.hosts.get(name)))
    hosts.sort(key=lambda each: (-(each[1].mean_response_seconds if order else each[0]), each[1].name))
    now = await store_seconds(view.frontier)
    rows: list[list[Node]] = [
        [
            E.a(host.name, href=path("hosts", host.name)) if not view.caller.app else host.name, number(length),
            mean_response(host), duration(max(host.crawl_delay_seconds, host.adaptive_delay_seconds) or None),
            str(host.failures), host.backoff_reason if host.backoff_until > now else "–",
        ]
        for length, host in hosts
    ]  # fmt: skip
    links = [
        E.li(
            E.a(shown, href=path("crawls", crawl.id, "hosts", order=key), aria_current="page" if key == order else None)
        )
        for key, shown in _ORDERS.items()
    ]
    columns = (">Host", "#Waiting", "#Mean response", "#Own delay", "#Failures", ">Back-off")
    content: list[Node] = [
        _heading(crawl, "Hosts"),
        E.nav(E.ul(links), aria_label="Order"),
        table("Hosts", columns, rows) if rows else empty("No host has waiting URLs of this crawl."),
        E.p(f"The first {_HOSTS_SHOWN} hosts are shown.", class_="quiet") if len(rows) == _HOSTS_SHOWN else None,
    ]
    return DashboardPage(f"Hosts of {crawl.id}", content, _SECTION)


def _heading(crawl: Crawl, what: str) -> Node:
    return E.h1(E.a(crawl.id, href=path("crawls", crawl.id)), f" · {what}")
