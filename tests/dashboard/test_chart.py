"""Charts: one value is a line, and a drawing is kept for some seconds."""

from __future__ import annotations

from shoal.api.dashboard.chart import DrawnCharts, chart, per_second
from shoal.api.dashboard.html import E, render
from shoal.frontier.history import Growth


def growth(at: int, stored: int) -> Growth:
    return Growth(at=at, seconds=60, stored=stored, failed=0, excluded=0, bytes=0, open=0, workers=1)


def test_the_first_minute_is_a_line() -> None:
    values = per_second([growth(120, 600)], "stored")
    assert values == [(60, 10.0), (120, 10.0)]
    html = render(chart("Pages", values, str, start=0, end=120))
    assert 'points="300.0,6.0 600.0,6.0"' in html
    assert per_second([], "stored") == []


def test_a_drawing_is_kept_for_some_seconds_and_the_oldest_is_dropped() -> None:
    drawn = DrawnCharts()
    assert drawn.get("a", 10.0) is None
    drawn.keep("a", 10.0, E.p("one"))
    assert render(drawn.get("a", 14.0)) == "<p>one</p>"
    assert drawn.get("a", 15.5) is None
    for number in range(100):
        drawn.keep(number, 16.0, E.p("other"))
    assert drawn.get("a", 10.0) is None
    assert drawn.get(0, 16.0) is not None
