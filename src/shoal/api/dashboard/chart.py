"""Charts as SVG, drawn by the server: a line over time, with its name and its highest value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from shoal.api.dashboard.components import timestamp
from shoal.api.dashboard.html import E, Element
from shoal.frontier.history import Growth

_WIDTH, _HEIGHT = 600, 100
# More points than this do not fit on a screen: neighbours are then drawn as their mean.
_MOST_POINTS = 300
_KEPT_SECONDS = 5.0
_MOST_DRAWN = 100


class DrawnCharts:
    """Cached drawings: a history has one point per minute, but a page is rendered every second. Times are passed in."""

    def __init__(self) -> None:
        self._drawn: dict[Hashable, tuple[float, Element]] = {}

    def get(self, key: Hashable, now: float) -> Element | None:
        drawn_at, drawing = self._drawn.get(key, (0.0, None))
        return drawing if now - drawn_at < _KEPT_SECONDS else None

    def keep(self, key: Hashable, now: float, drawing: Element) -> None:
        self._drawn.pop(key, None)
        while len(self._drawn) >= _MOST_DRAWN:
            del self._drawn[next(iter(self._drawn))]
        self._drawn[key] = (now, drawing)


def chart(
    name: str, points: Sequence[tuple[float, float]], format_value: Callable[[float], str], *, start: float, end: float
) -> Element:
    """Values over time, from `start` to `end` in seconds since 1970."""
    points = _thinned([point for point in points if start <= point[0] <= end])
    highest = max((value for _, value in points), default=0.0)
    latest = points[-1][1] if points else 0.0
    label = f"{name}: now {format_value(latest)}, maximum {format_value(highest)}"
    scale = highest or 1.0
    positions = [
        ((time - start) / max(end - start, 1) * _WIDTH, _HEIGHT - value / scale * (_HEIGHT - 6))
        for time, value in points
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in positions)
    drawing = None
    if positions:
        area = f"M{positions[0][0]:.1f},{_HEIGHT} L{line} L{positions[-1][0]:.1f},{_HEIGHT} Z"
        drawing = [E.path(d=area, class_="area"), E.polyline(points=line, class_="line")]
    return E.figure(
        E.figcaption(E.b(name), f"{format_value(latest)} · max {format_value(highest)}"),
        E.svg(
            drawing, class_="chart", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", preserveAspectRatio="none", role="img",
            aria_label=label,
        ),
        E.div(timestamp(start, "clock" if end - start <= 86400 else "day"),
              timestamp(end, "clock" if end - start <= 86400 else "day"), class_="axis"),
    )  # fmt: skip


def per_second(grown: Sequence[Growth], name: str) -> list[tuple[float, float]]:
    """A rate over time. A minute without a point had the rate of the time around it."""
    rates = [(float(point.at), getattr(point, name) / max(1, point.seconds)) for point in grown]
    # The first rate applies to the time before its point: the line starts there, even if it is the only rate.
    return [(grown[0].at - grown[0].seconds, rates[0][1]), *rates] if rates else []


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    group = -(-len(points) // _MOST_POINTS)
    if group <= 1:
        return points
    groups = [points[start : start + group] for start in range(0, len(points), group)]
    return [(each[-1][0], sum(value for _, value in each) / len(each)) for each in groups]
