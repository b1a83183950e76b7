"""The charts of the fleet and of a crawl: the same, over the last hour, day, week or 90 days."""

from __future__ import annotations

from shoal.api.dashboard.chart import chart, per_second
from shoal.api.dashboard.components import number, path, rate, size
from shoal.api.dashboard.html import E, Node
from shoal.api.dashboard.view import View, live
from shoal.frontier.history import Step, growth
from shoal.frontier.inspect import store_seconds
from shoal.model.crawl import Crawl

_SHORTEST = 600
_SPANS = {"hour": 3600, "day": 86400, "week": 7 * 86400, "90 days": 90 * 86400}


async def charts(view: View, crawl: Crawl | None) -> Node:
    """With links to choose the time span."""
    span = view.text("span", *_SPANS) or "hour"
    now = await store_seconds(view.frontier)
    end = (crawl.ended_at or now) if crawl is not None else now
    start = end - _SPANS[span]
    step = Step.MINUTE if span in ("hour", "day") and now - start < 90000 else Step.HOUR
    points = await view.frontier.history.read(crawl, step)
    # By hour, the last minutes are those of an hour that is not over.
    end = max(end, points[-1].at) if points else end
    # A young history fills the width.
    if points and points[0].at > start:
        start = max(start, min(points[0].at, end - _SHORTEST))
    grown = growth(points)
    own = ("crawls", crawl.id) if crawl is not None else ()
    links = [
        E.li(E.a(f"last {name}", href=path(*own, span=name), aria_current="page" if name == span else None))
        for name in _SPANS
    ]
    drawn: Node
    if grown:
        drawn = E.div(
            chart("Pages per second", per_second(grown, "stored"), rate, start=start, end=end),
            chart("Failures per second", per_second(grown, "failed"), rate, start=start, end=end),
            chart("Received per second", per_second(grown, "bytes"), size, start=start, end=end),
            chart("URLs left", [(point.at, point.open) for point in grown], number, start=start, end=end),
            class_="charts",
        )  # fmt: skip
    else:
        drawn = E.p("No history yet: a point is written every minute while a server or a worker runs.", class_="empty")
    return [E.nav(E.ul(links), aria_label="Time span"), live("charts", drawn)]
