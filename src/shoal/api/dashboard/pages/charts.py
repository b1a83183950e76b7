"""The charts of the fleet or of a crawl, over the last hour, day, week or 90 days.

A history has one point per minute, so charts are drawn again every few seconds, not with every rendering of a page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from shoal.api.dashboard.chart import chart, per_second
from shoal.api.dashboard.components import number, path, rate, size
from shoal.api.dashboard.html import E, Element, Node
from shoal.api.dashboard.view import View, live
from shoal.frontier.history import Step, growth
from shoal.frontier.inspect import store_seconds
from shoal.model.crawl import Crawl

_SHORTEST = 600
_SPANS = {"hour": 3600, "day": 86400, "week": 7 * 86400, "90 days": 90 * 86400}


async def charts(view: View, crawl: Crawl | None) -> Node:
    """Return the charts, with links to choose the time span."""
    span = view.text("span", *_SPANS) or "hour"
    own = ("crawls", crawl.id) if crawl is not None else ()
    links = [
        E.li(E.a(f"last {name}", href=path(*own, span=name), aria_current="page" if name == span else None))
        for name in _SPANS
    ]
    # A name that is reused belongs to another crawl.
    key = ("" if crawl is None else f"{crawl.key} {crawl.ended_at}", span)
    drawn = view.fleet.charts.get(key, time.monotonic())
    if drawn is None:
        drawn = await _draw(view, crawl, span)
        view.fleet.charts.keep(key, time.monotonic(), drawn)
    return [E.nav(E.ul(links), aria_label="Time span"), live("charts", drawn)]


async def _draw(view: View, crawl: Crawl | None, span: str) -> Element:
    now = await store_seconds(view.frontier)
    # The chart ends with the last full minute: a chart that moved every second would be sent every second.
    end = (crawl.ended_at if crawl is not None else 0.0) or now - now % 60
    start = end - _SPANS[span]
    step = Step.MINUTE if span in ("hour", "day") and now - start < 90000 else Step.HOUR
    # One point more than the span has, and the point before it: a rate needs two points.
    points = await view.frontier.history.read(crawl, step, _SPANS[span] // step.seconds + 2)
    # By hour, the last minutes belong to an hour that has not ended.
    end = max(end, points[-1].at) if points else end
    # A young history fills the width.
    if points and points[0].at > start:
        start = max(start, min(points[0].at, end - _SHORTEST))
    grown = growth(points)
    if not grown:
        return E.p("No history yet: a point is written every minute while a server or a worker runs.", class_="empty")
    lines: tuple[tuple[str, Sequence[tuple[float, float]], Callable[[float], str]], ...] = (
        ("Pages per second", per_second(grown, "stored"), rate),
        ("Failures per second", per_second(grown, "failed"), rate),
        ("Received per second", per_second(grown, "bytes"), size),
        ("URLs left", [(point.at, point.totals.open) for point in points], number),
    )
    drawn = []
    for name, values, shown in lines:
        drawn.append(chart(name, values, shown, start=start, end=end))
        # Let other requests have a turn: a day has 1440 points.
        await asyncio.sleep(0)
    return E.div(drawn, class_="charts")
