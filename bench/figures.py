"""One figure: its measured value, its target, and the table they are printed in."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec


class Figure(msgspec.Struct, kw_only=True):
    """`values` are the repeats; the median is the figure. `peers` are scrapy-redis' repeats of the same run."""

    name: str
    unit: str
    values: list[float]
    peers: list[float] = []
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def peer(self) -> float | None:
        return statistics.median(self.peers) if self.peers else None

    @property
    def target(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return f">= {self.at_least:g}" if self.at_least is not None else ""

    @property
    def verdict(self) -> str:
        if self.at_most is not None and self.value > self.at_most:
            return f"missed by {(self.value / self.at_most - 1) * 100:.0f} %"
        if self.at_least is not None and self.value < self.at_least:
            return f"missed by {(1 - self.value / self.at_least) * 100:.0f} %"
        return "reached" if self.target else ""

    @property
    def spread(self) -> str:
        return f"{_short(min(self.values))} to {_short(max(self.values))}" if len(self.values) > 1 else ""


_HEADS = ("figure", "Shoal", "unit", "spread", "target", "verdict", "scrapy-redis", "how")


def table(figures: Sequence[Figure]) -> str:
    """A Markdown table, readable as it is."""
    rows = [_HEADS, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines)


def _row(figure: Figure) -> tuple[str, ...]:
    peer = "" if figure.peer is None else _short(figure.peer)
    return (
        figure.name, _short(figure.value), figure.unit, figure.spread, figure.target, figure.verdict, peer, figure.note,
    )  # fmt: skip


def _short(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
