"""All crawls, newest first, page by page."""

from __future__ import annotations

from shoal.api.dashboard.components import empty, more, number, path, state, table, timestamp
from shoal.api.dashboard.html import E, Node
from shoal.api.dashboard.view import DashboardPage, View, live
from shoal.api.handlers.crawls import CrawlPage, page_of
from shoal.model.crawl import State

_STATES = [state.value for state in State if state is not State.DELETED]


async def page_of_crawls(view: View) -> DashboardPage:
    chosen = view.text("state", *_STATES)
    crawl_page: CrawlPage = await page_of(view)
    links = [
        E.li(E.a(name or "all", href=path("crawls", state=name), aria_current="page" if name == chosen else None))
        for name in ("", *_STATES)
    ]
    content: list[Node] = [
        E.h1("Crawls"),
        E.nav(E.ul(links), aria_label="Crawls by state"),
        live("crawls", _table(crawl_page, chosen)),
        more(path("crawls", state=chosen, cursor=crawl_page.next) if crawl_page.next else None),
    ]
    return DashboardPage("Crawls", content, "Crawls")


def _table(crawl_page: CrawlPage, chosen: str) -> Node:
    if not crawl_page.crawls:
        if chosen:
            return empty(f"No crawl is {chosen}.")
        return empty("No crawl yet. ", E.a("Start one", href="/new"), ".")
    rows: list[list[Node]] = [
        [
            E.a(crawl.id, href=path("crawls", crawl.id)), crawl.app, state(crawl.state, crawl.why),
            number(crawl.counts.stored), number(crawl.counts.failed), number(crawl.counts.open), str(crawl.priority),
            timestamp(crawl.created_at), timestamp(crawl.ended_at),
        ]
        for crawl in crawl_page.crawls
    ]  # fmt: skip
    columns = (">Crawl", "Application", "State", "#Pages", "#Failed", "#Remaining", "#Priority", "=Started", "=Ended")
    return table("Crawls", columns, rows)
