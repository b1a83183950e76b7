"""The overview: the current figures of the fleet, its charts and crawls, and warnings."""

from __future__ import annotations

from shoal.api.dashboard.components import (
    bar,
    duration,
    empty,
    figures,
    number,
    path,
    rate,
    size,
    state,
    table,
    timestamp,
)
from shoal.api.dashboard.fleet import Attention, CrawlProgress, FleetView
from shoal.api.dashboard.html import E, Node
from shoal.api.dashboard.pages.charts import charts
from shoal.api.dashboard.pages.crawls import page_of_crawls
from shoal.api.dashboard.view import DashboardPage, View, live


async def overview(view: View) -> DashboardPage:
    if view.caller.app:
        # A token of an application sees its crawls, and nothing of the fleet.
        return await page_of_crawls(view)
    fleet = await view.fleet.read()
    content = [
        E.h1("Overview"),
        live("attention", _attention(fleet.attention)),
        live("figures", _figures(fleet)),
        await charts(view, None),
        E.h2("Crawls"),
        live("crawls", crawl_table(fleet.crawls)),
        E.p(E.a("All crawls", href="/crawls")),
    ]
    return DashboardPage("Overview", content, "Overview")


def _attention(items: list[Attention]) -> Node:
    return E.ul(
        [E.li(E.a(item.text, href=item.path), class_=f"note {'bad' if item.bad else 'warn'}") for item in items],
        class_="attention", aria_label="Needs attention",
    ) if items else None  # fmt: skip


def _figures(fleet: FleetView) -> Node:
    stats, counts = fleet.stats, fleet.stats.counts
    used = sum(node.used_bytes for node in fleet.memory)
    limit = sum(node.limit_bytes for node in fleet.memory)
    bound = E.small(f" of {size(limit)}" if limit else " no limit")
    memory: Node = [E.span(size(used), class_="fixed"), bound]
    return figures(
        [
            ("Pages/s", rate(fleet.pages_per_second)),
            ("Failures/s", rate(fleet.failures_per_second)),
            ("Received/s", size(fleet.bytes_per_second)),
            ("Pages stored", number(counts.stored)),
            ("URLs waiting", number(counts.waiting + counts.later)),
            ("URLs failed", number(counts.failed)),
            ("Crawls running", [number(stats.crawls.get("running", 0)),
                                E.small(f" {stats.crawls.get('paused', 0):,} paused")]),
            ("Workers alive", number(stats.workers)),
            ("Hosts ready", [number(stats.hosts_ready), E.small(f" {stats.hosts_cooling:,} waiting")]),
            ("Store memory", memory),
        ]
    )  # fmt: skip


def crawl_table(rows: list[CrawlProgress]) -> Node:
    if not rows:
        return empty(
            "No crawl yet. ", E.a("Start one", href="/new"), ", or run ",
            E.code("shoal submit --store URL https://example.org/"), ".",
        )  # fmt: skip
    columns = (">Crawl", "State", "~Progress", "#Pages", "#Pages/s", "#Failed", "#Remaining", "=Time left", "=Started")
    return table("Crawls", columns, [_row(row) for row in rows])


def _row(row: CrawlProgress) -> list[Node]:
    crawl, counts = row.crawl, row.counts
    return [
        E.a(crawl.id, href=path("crawls", crawl.id)),
        state(crawl.state.value, crawl.why),
        bar(row.done, row.total, "done"),
        number(counts.stored),
        rate(row.rate) if crawl.state.open else "",
        number(counts.failed),
        number(counts.open),
        duration(row.eta_seconds) if crawl.state.open else "",
        timestamp(crawl.created_at),
    ]
