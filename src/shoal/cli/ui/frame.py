"""The live display of a crawl: what a frame shows in a terminal of a given size. Pure; region.py draws it.

A frame leaves some rows to the messages above it and is never wider than the terminal. Where it does not fit, what is
further down gives way: workers first ("and 6 more"), then empty lines, then the rest from below.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

import msgspec

from shoal.cli.ui.console import about, duration, size, visible
from shoal.cli.ui.rates import Rates, Row
from shoal.model.crawl import Counts

# Pieces of a line: a text and how it looks.
Line = list[tuple[str, str]]
_LOOKS = {"strong": "1", "faint": "2", "good": "32", "care": "33", "bad": "31", "graph": "36"}
_STATES = {"running": "good", "paused": "care", "pausing": "care", "ending": "care"}
BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
_LABEL = 10
_MESSAGE_ROWS = 5
_ROW_WIDTH = 76
# From this size on, the graph has rows of its own.
_TALL, _WIDE = 34, 60
_GRAPH_ROWS = 6


class Snapshot(msgspec.Struct, kw_only=True):
    """What is known at one moment. `left_seconds`: None when nobody can say."""

    title: str
    state: str
    elapsed_seconds: float
    pace: Rates
    left_seconds: float | None = None
    where: str = ""
    # Worker names begin with this, which every row would only repeat.
    prefix: str = ""
    # Some of it was done before: what is only of this run is called so.
    resumed: bool = False


def frame(view: Snapshot, columns: int, rows: int, *, bars: str = BARS) -> list[Line]:
    """Lines for a terminal of this size, each narrower than it by one, so that no line wraps."""
    width = max(10, columns - 1)
    room = max(1, rows - 1 - min(_MESSAGE_ROWS, rows // 5))
    lines = [_head(view), *_numbers(view, width, bars, tall=rows >= _TALL and width >= _WIDE)]
    workers = view.pace.workers()
    spare = room - len(lines)
    if workers and spare >= 2:
        table = _table(workers, width, spare - 2 if spare > 3 else spare - 1, view.prefix)
        lines += [[], *table] if spare > 3 else table
    return [_clipped(line, width) for line in lines[:room]]


def painted(line: Line, *, colours: bool) -> str:
    if not colours:
        return "".join(text for text, _ in line)
    return "".join(f"\x1b[{_LOOKS[look]}m{text}\x1b[0m" if look else text for text, look in line)


def cells(text: str) -> int:
    """How many columns a text takes: two for each wide character, none for one that joins the one before."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _clipped(line: Line, width: int) -> Line:
    kept: Line = []
    for text, look in line:
        if cells(text) <= width:
            kept.append((text, look))
            width -= cells(text)
            continue
        short, left = "", width - 1
        for character in text:
            left -= _width(character)
            if left < 0:
                break
            short += character
        # Marked as cut: the first half of a number reads like another number.
        return [*kept, (short + "…" if width > 0 else short, look)]
    return kept


def _head(view: Snapshot) -> Line:
    line: Line = [
        (visible(view.title), "strong"), ("  ", ""), (view.state, _STATES.get(view.state, "")),
        (f"  {duration(view.elapsed_seconds) if view.elapsed_seconds >= 100 else f'{view.elapsed_seconds:.0f} s'}", ""),
        (" of this run" if view.resumed else "", ""),
    ]  # fmt: skip
    if view.left_seconds is not None and view.state == "running":
        how = "at least" if view.pace.growing else "about"
        line.append((f"  {how} {about(view.left_seconds)} left", "strong"))
    if view.where:
        line.append((f"  {visible(view.where)}", "faint"))
    return line


def _numbers(view: Snapshot, width: int, bars: str, *, tall: bool) -> list[Line]:
    pace, counts, total = view.pace, view.pace.counts, view.pace.total
    run = " of this run" if view.resumed else ""
    rates = f"{_rate(pace.rate)} pages/s now, {_rate(pace.mean)} mean{run}"
    pages = _labelled("pages", f"{pace.stored:,}", rates)
    lines = [] if counts is None else [_bar(counts, width, bars)]
    if not tall and (space := width - sum(cells(text) for text, _ in pages) - 2) >= 10:
        values, _ = pace.rates(min(space, 60))
        pages += [("  ", ""), (graph(values, 1, bars)[0], "graph")]
    lines.append(pages)
    lines.append(
        _labelled("received", size(total.bytes), f"{size(pace.bytes_a_second)}/s" + (f",{run}" if run else ""))
    )
    if counts is not None:
        parts = [("waiting", counts.waiting), ("with workers", counts.leased), ("to be tried later", counts.later)]
        text = ", ".join(f"{number:,} {word}" for word, number in parts if number)
        lines.append(_labelled("to go", f"{counts.open:,}", text))
        lines.append(_reasons("failed", counts.failed, counts.reasons, width, "bad"))
        lines.append(_reasons("excluded", counts.excluded, counts.reasons, width, ""))
    ready, cooling = pace.hosts
    hosts = f"{ready:,} ready, {cooling:,} cooling down, {total.backing_off:,} backing off"
    lines.append(_labelled("hosts", f"{pace.open_hosts:,} open", hosts))
    shares = ", ".join(f"{name} {share:.0%}" for name, share in pace.limits() if share >= 0.01)
    lines.append(_labelled("limit", "", shares or "not known yet"))
    if total.trouble:
        lines.append([(f"{'trouble':<{_LABEL}}", "faint"), (visible(total.trouble), "bad")])
    if tall:
        lines += _tall_graph(pace, width, bars)
    return lines


def _labelled(label: str, value: str, rest: str, look: str = "strong") -> Line:
    line: Line = [(f"{label:<{_LABEL}}", "faint")]
    if value:
        line.append((f"{value:<11} ", look))
    return [*line, (rest, "")]


def _reasons(word: str, number: int, reasons: Mapping[str, int], width: int, look: str) -> Line:
    """How many, and why: as many reasons as fit, the most frequent first."""
    found = sorted(((count, name.partition(":")[2]) for name, count in reasons.items() if name.startswith(f"{word}:")))
    room, shown = width - _LABEL - 12 - len(", 123,456 others"), ""
    left = number
    while found:
        count, name = found[-1]
        part = f"{', ' if shown else ''}{count:,} {visible(name)}"
        if cells(shown + part) > room:
            break
        found.pop()
        shown, left = shown + part, left - count
    if found:
        shown += f"{', ' if shown else ''}{left:,} others"
    return _labelled(word, f"{number:,}", shown, look if number and look else "strong")


def _bar(counts: Counts, width: int, bars: str) -> Line:
    share = counts.ended / counts.admitted if counts.admitted else 0.0
    text = f"  {int(share * 100)}% of {counts.admitted:,} URL{'' if counts.admitted == 1 else 's'} found"
    space = max(0, width - cells(text))
    full = int(share * space)
    on, off = ("━", "─") if bars == BARS else ("#", "-")
    return [(on * full, "good"), (off * (space - full), "faint"), (text, "")]


def graph(values: Sequence[float], rows: int, bars: str = BARS) -> list[str]:
    """Columns of blocks, as many rows high, the topmost first; the largest value fills them."""
    top, levels = max(values, default=0.0), len(bars) - 1
    heights = [round(value / top * rows * levels) if top else 0 for value in values]
    # Something is not nothing, however small.
    heights = [max(height, 1) if value else 0 for height, value in zip(heights, values, strict=True)]
    return [
        "".join(bars[min(levels, max(0, height - row * levels))] for height in heights)
        for row in reversed(range(rows))
    ]  # fmt: skip


def _tall_graph(pace: Rates, width: int, bars: str) -> list[Line]:
    axis = 12
    values, each = pace.rates(width - axis)
    most = max(values, default=0.0)
    labels = [f"{_rate(most)} pages/s", *[""] * (_GRAPH_ROWS - 2), "0"]
    widest = max(axis, len(labels[0]) + 1)
    values = values[-(width - widest) :]
    lines: list[Line] = [[]]
    for label, row in zip(labels, graph(values, _GRAPH_ROWS, bars), strict=True):
        lines.append([(f"{label:>{widest - 1}} ", "faint"), (row, "graph")])
    ago = f"{about(each * len(values))} ago"
    if len(values) > len(ago) + 5:
        lines.append([(" " * widest + ago + "now".rjust(len(values) - len(ago)), "faint")])
    return lines


def _table(workers: list[Row], width: int, room: int, prefix: str) -> list[Line]:
    """A heading, and `room` rows of workers at most; two side by side where they fit and are needed."""
    head = f"{'worker':>6} {'pid':>8} {'pages':>11} {'pages/s':>8} {'hosts':>6} {'CPU':>6}  waits for"
    beside = max(1, min((width + 2) // (_ROW_WIDTH + 2), -(-len(workers) // max(1, room))))
    shown = workers if len(workers) <= room * beside else workers[: max(0, room - 1) * beside]
    each = -(-len(shown) // beside)
    lines: list[Line] = [[((f"{head:<{_ROW_WIDTH}}  " * beside).rstrip(), "faint")]]
    for number in range(each):
        parts = [shown[column] for column in range(number, len(shown), each)]
        texts = [_row(one, prefix) for one in parts]
        clip = [(f"{text[:_ROW_WIDTH]:<{_ROW_WIDTH}}  " if beside > 1 else text) for text in texts]
        lines.append([("".join(clip).rstrip(), "")])
    if rest := workers[len(shown) :]:
        pages, rate = sum(one.pages for one in rest), sum(one.rate for one in rest)
        lines.append([(f"and {len(rest):,} more, with {pages:,} pages and {_rate(rate)} pages/s", "faint")])
    return lines


def _row(one: Row, prefix: str) -> str:
    name = one.name.removeprefix(prefix).lstrip("-")[-6:]
    return (
        f"{name:>6} {one.pid:>8} {one.pages:>11,} {_rate(one.rate):>8} {one.hosts:>6,} {one.cpu:>6.0%}  "
        f"{visible(one.waits)}"
    )


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
