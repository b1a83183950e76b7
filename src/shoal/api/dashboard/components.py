"""The small pieces that pages are made of: figures, tables, times, buttons, bars. Pure functions of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import quote

from shoal.api.dashboard.html import E, Element, Node

_SHOWN = 160
_HOVERED = 2000


def number(value: float) -> str:
    return f"{value:,.0f}"


def rate(value: float | None) -> str:
    if value is None:
        return "–"
    if 0 < value < 0.1:
        return f"{value:.2f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def duration(seconds: float | None) -> str:
    """Format a duration, rounded: 12 s, 4 min, 3.5 h, 12 days."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}" if seconds >= 20 * length else f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def timestamp(seconds: float, format_: str = "") -> Node:
    """A time since 1970. The browser shows it in the viewer's zone, and the exact time on hover."""
    if seconds <= 0:
        return "–"
    exact = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return E.time(f"{exact[:10]} {exact[11:19]} UTC", datetime=exact, data_format=format_ or None)


def path(*parts: str, **query: object) -> str:
    """A path of the dashboard: every part is quoted."""
    query_text = "&".join(
        f"{quote(name)}={quote(str(value), safe='')}" for name, value in query.items() if value not in ("", None)
    )
    return "/" + "/".join(quote(part, safe=":@") for part in parts) + (f"?{query_text}" if query_text else "")


def foreign(text: str, most: int = _SHOWN) -> Element:
    """Text from the web: isolated, shortened, whole on hover."""
    if len(text) <= most:
        return E.bdi(text)
    return E.bdi(f"{text[:most]}…", title=text[:_HOVERED])


def outside(url: str, most: int = _SHOWN) -> Element:
    """A link to a crawled page, which gets no information about this page."""
    if url.lower().startswith(("http://", "https://")):
        return E.a(foreign(url, most), href=url, rel="noopener noreferrer nofollow", target="_blank")
    return foreign(url, most)


def state(value: str, reason: str = "") -> Node:
    shown_reason = E.span(f" {reason}", class_="quiet") if reason and reason != value else None
    return [E.span(value, class_=f"state {value}"), shown_reason]


def figures(values: Iterable[tuple[str, Node]]) -> Element:
    return E.dl([E.div(E.dt(name), E.dd(value)) for name, value in values], class_="figures")


def facts(values: Iterable[tuple[str, Node]]) -> Element:
    return E.dl([[E.dt(name), E.dd(value)] for name, value in values], class_="facts")


def table(label: str, columns: Sequence[str], rows: Sequence[Sequence[Node]]) -> Element:
    """A table. A column `#Pages` holds numbers, `>URL` text that may be long, `=Time` text that is not wrapped.

    A column `~Progress` is left out on a phone.
    """
    kinds = {"#": "number", ">": "text", "=": "fixed", "~": "extra"}
    classes = [kinds.get(column[:1]) for column in columns]
    head = [
        E.th(column.lstrip("#>=~"), scope="col", class_=kind) for column, kind in zip(columns, classes, strict=True)
    ]
    body = [
        E.tr([E.td(cell, class_=kind) for cell, kind in zip(row, classes, strict=True)]) for row in rows
    ]  # fmt: skip
    return E.div(E.table(E.thead(E.tr(head)), E.tbody(body)), class_="wide", role="group", aria_label=label, tabindex=0)


def bar(part: float, whole: float, label: str) -> Element:
    share = min(1.0, part / whole) if whole else 0.0
    return E.svg(
        E.rect(width=f"{share * 100:.1f}", height=10), class_="bar", viewBox="0 0 100 10", role="img",
        preserveAspectRatio="none", aria_label=f"{label}: {share:.0%}",
    )  # fmt: skip


def button(text: str, target: str, *, kind: str = "", name: str = "", value: str = "") -> Element:
    """A button for a change. It may be in a live part: it belongs to the page's form, which has the session's proof."""
    return E.button(
        text, type="submit", form="act", formaction=target, class_=kind or None, name=name or None, value=value or None
    )


def tick(name: str, value: str, label: str) -> Element:
    """A checkbox that selects a value for the buttons of the page."""
    return E.input(type="checkbox", form="act", name=name, value=value, aria_label=label)


def confirm(text: str, explanation: Node, target: str, action: str, *, name: str = "", value: str = "") -> Element:
    """A button for a destructive change, with a description and a confirmation."""
    sure = button(action, target, kind="danger", name=name, value=value)
    return E.details(E.summary(text), E.div(E.p(explanation), sure), class_="confirm")


def form(target: str, proof: str, *content: Node, **attributes: str) -> Element:
    return E.form(
        E.input(type="hidden", name="proof", value=proof), *content, method="post", action=target, **attributes
    )


def field(
    label: str, name: str, value: str = "", *, kind: str = "text", **attributes: str | int | bool | None
) -> Element:
    return E.div(
        E.label(label, for_=f"field-{name}"),
        E.input(type=kind, name=name, id=f"field-{name}", value=value or None, **attributes),
    )


def empty(*content: Node) -> Element:
    return E.p(*content, class_="empty")


def note(kind: str, *content: Node) -> Element:
    return E.p(*content, class_=f"note {kind}", role="status")


def more(target: str | None, text: str = "Next page") -> Node:
    return E.a(text, href=target, class_="button more", rel="next") if target else None


def by_reason(
    label: str, counts: Mapping[str, int], target: Callable[[str], str] | None = None, most: int = 20
) -> Node:
    """Counts by reason, the most frequent first. `target` is the page of a reason."""
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    others = sum(count for _, count in ranked[most:])
    rows: list[list[Node]] = [
        [E.a(foreign(reason), href=target(reason)) if target else foreign(reason), number(count)]
        for reason, count in ranked[:most]
    ]
    if others:
        rows.append([f"{len(ranked) - most} other reasons", number(others)])
    return table(label, (">Reason", "#URLs"), rows)
