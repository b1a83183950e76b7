"""Find a URL: its state in each crawl, and the rule that decides about it. `operations/explain.py` finds both."""

from __future__ import annotations

import time

from shoal.api.auth import Role
from shoal.api.dashboard.components import (
    button,
    confirm,
    empty,
    foreign,
    note,
    number,
    outside,
    path,
    table,
    timestamp,
)
from shoal.api.dashboard.html import E, Node
from shoal.api.dashboard.view import DashboardPage, View
from shoal.errors import InvalidUrl
from shoal.frontier.inspect import list_crawls
from shoal.frontier.url_state import UrlPlace
from shoal.model.crawl import Crawl, CrawlKind, State
from shoal.operations.explain import Check, Explanation, explain
from shoal.operations.known_urls import can_forget, can_revisit
from shoal.operations.seeds import seed_target
from shoal.urls.canonical import MAX_URL_BYTES

_REVISITED = (UrlPlace.DONE, UrlPlace.FAILED, UrlPlace.LATER)
# Crawls are checked one by one, open crawls first, up to this number and for this time: a person waits.
_CRAWLS, _SECONDS = 500, 3.0


async def find_page(view: View) -> DashboardPage:
    url = view.request.query_params.get("url", "").strip()[:MAX_URL_BYTES]
    content: list[Node] = [E.h1("Find a URL")]
    if not url:
        content.append(empty("Enter a URL above to see its state in each crawl."))
        return DashboardPage("Find a URL", content)
    try:
        target = seed_target(url)
    except InvalidUrl as error:
        return DashboardPage("Find a URL", [*content, note("bad", str(error))])
    host = E.a(target.host, href=path("hosts", target.host)) if not view.caller.app else target.host
    content.append(E.p(outside(target.url, 500), " at host ", host))
    known, others, left, crawls = await _explanations(view, url)
    if known:
        content += [
            _explanation(explanation, _actions(view, explanation, crawls[explanation.crawl])) for explanation in known
        ]
    else:
        content.append(empty("No crawl knows this URL."))
    if others:
        which = "crawl that has" if len(others) == 1 else "crawls that have"
        content.append(
            E.details(
                E.summary(f"{number(len(others))} {which} not seen it"),
                [_explanation(explanation) for explanation in others],
            )
        )
    if left:
        content.append(E.p(f"{number(left)} more crawls were not searched; they are older.", class_="quiet"))
    return DashboardPage("Find a URL", content)


async def _explanations(view: View, url: str) -> tuple[list[Explanation], list[Explanation], int, dict[str, Crawl]]:
    """Return explanations of crawls that know the URL, and of the others.

    Also returns the number of crawls that were not searched, and the crawls by id.
    """
    crawls = [
        crawl
        async for _, crawl in list_crawls(view.frontier)
        if crawl.state is not State.DELETED and crawl.kind is not CrawlKind.BRANCH and view.sees(crawl)
    ]
    crawls.sort(key=lambda crawl: not crawl.state.open)
    known: list[Explanation] = []
    others: list[Explanation] = []
    deadline = time.monotonic() + _SECONDS
    for index, crawl in enumerate(crawls):
        if index >= _CRAWLS or time.monotonic() > deadline:
            return known, others, len(crawls) - index, {crawl.id: crawl for crawl in crawls}
        explained = await explain(view.frontier, crawl, url)
        (others if explained.state is UrlPlace.UNKNOWN else known).append(explained)
    return known, others, 0, {crawl.id: crawl for crawl in crawls}


def _actions(view: View, explained: Explanation, crawl: Crawl) -> Node:
    """The actions on the URL in this crawl. The API checks again whether they are allowed."""
    if not view.may(Role.SUBMIT) or not can_revisit(crawl):
        return None
    own, acts = path("crawls", crawl.id), list[Node]()
    url = explained.canonical
    if explained.state in _REVISITED and (crawl.state.open or crawl.is_complete):
        acts.append(button("Visit again now", f"{own}/revisit", name="url", value=url))
    if explained.state is UrlPlace.DONE and can_forget(crawl):
        explanation = (
            f"Crawl {crawl.id} forgets that it has seen this URL. The crawl visits and counts it again when a page or "
            "a seed leads to it. Its record in the output stays."
        )
        acts.append(confirm("Forget…", explanation, f"{own}/forget", "Forget this URL", name="url", value=url))
    return E.div(acts, class_="actions") if acts else None


def _explanation(explained: Explanation, actions: Node = None) -> Node:
    details: list[Node] = []
    if explained.ahead is not None:
        details.append(f"{number(explained.ahead)} URLs are ahead of it in the queue of its host. ")
    if explained.worker:
        details.append(f"Leased by {explained.worker}. ")
    if explained.until:
        details.append(["Until ", timestamp(explained.until), ". "])
    return E.section(
        E.h2(E.a(explained.crawl, href=path("crawls", explained.crawl)), " ",
             E.span(explained.verdict.value, class_=f"state {_COLOURS.get(explained.verdict.value, 'finished')}")),
        E.p(explained.text),
        E.p(details, class_="quiet") if details else None,
        actions,
        E.details(E.summary("Every rule that was applied"), _checks(explained.checks)),
    )  # fmt: skip


_COLOURS = {"visited": "running", "queued": "running", "held": "late", "failed": "lost", "excluded": "lost"}


def _checks(checks: tuple[Check, ...]) -> Node:
    words = {True: "passes", False: "excludes it", None: "undecided"}
    rows: list[list[Node]] = [
        [check.name, words[check.passed], foreign(check.rule), foreign(check.text, 400)] for check in checks
    ]
    return table("Rules", ("=Rule", "=Result", ">Set by", ">Finding"), rows)
