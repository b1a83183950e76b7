"""The live display: the lines of one frame for a terminal of a given size. Pure; live.py draws it.

A frame leaves some rows to the messages above it and is never wider than the terminal. If it does not fit, workers are
left out first ("and 6 more"), then empty lines, then lines from the bottom.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

import msgspec

from shoal.cli.ui.console import approx_duration, duration, size, visible
from shoal.cli.ui.rates import Rates, Row
from shoal.frontier.inspect import PendingHost
from shoal.model.crawl import Counts

# Pieces of a line: a text and its style.
Line = list[tuple[str, str]]
_LOOKS = {"strong": "1", "faint": "2", "good": "32", "care": "33", "bad": "31", "graph": "36"}
_STATES = {
    "running": "good", "paused": "care", "pausing": "care", "stopping": "care", "store unavailable": "bad",
}  # fmt: skip
BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
_LABEL = 12
_MESSAGE_ROWS = 5
_ROW_WIDTH = 76
# From this size on, the graph has rows of its own.
_TALL, _WIDE = 34, 60
_GRAPH_ROWS = 6


class Snapshot(msgspec.Struct, kw_only=True):
    """The data of one frame. `left_seconds` is None if there is no estimate."""

    title: str
    state: str
    elapsed_seconds: float
    pace: Rates
    left_seconds: float | None = None
    where: str = ""
    # Common prefix of the worker names, left out of the rows.
    prefix: str = ""
    # Earlier runs worked on the crawl, so figures of this run are marked.
    resumed: bool = False
    # Why the store is unavailable ('' if it is available), and for how long.
    store_trouble: str = ""
    unavailable_seconds: float = 0.0


def frame(view: Snapshot, columns: int, rows: int, *, bars: str = BARS) -> list[Line]:
    """Return the lines for a terminal of this size, each one column narrower, so that no line wraps."""
    width = max(10, columns - 1)
    room = max(1, rows - 1 - min(_MESSAGE_ROWS, rows // 5))
    lines = [_head(view), *_numbers(view, width, bars, tall=rows >= _TALL and width >= _WIDE)]
    workers = view.pace.workers()
    spare = room - len(lines)
    if workers and spare >= 2:
        table = _table(workers, width, spare - 2 if spare > 3 else spare - 1, view.prefix)
        lines += [[], *table] if spare > 3 else table
    return [_clipped(line, width) for line in lines[:room]]


def paint(line: Line, *, colours: bool) -> str:
    if not colours:
        return "".join(text for text, _ in line)
    return "".join(f"\x1b[{_LOOKS[look]}m{text}\x1b[0m" if look else text for text, look in line)


def cells(text: str) -> int:
    """Return how many columns a text takes: two for a wide character, none for a combining one."""
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
        # Marked as cut: half of a number looks like another number.
        return [*kept, (short + "…" if width > 0 else short, look)]
    return kept


def _head(view: Snapshot) -> Line:
    state = "store unavailable" if view.store_trouble else view.state
    line: Line = [
        (visible(view.title), "strong"), ("  ", ""), (state, _STATES.get(state, "")),
        (f"  {duration(view.elapsed_seconds) if view.elapsed_seconds >= 100 else f'{view.elapsed_seconds:.0f} s'}", ""),
        (" in this run" if view.resumed else "", ""),
    ]  # fmt: skip
    if view.left_seconds is not None and state == "running":
        how = "at least" if view.pace.is_lower_bound else "about"
        line.append((f"  {how} {approx_duration(view.left_seconds)} left", "strong"))
    if view.where:
        line.append((f"  {visible(view.where)}", "faint"))
    return line


def _numbers(view: Snapshot, width: int, bars: str, *, tall: bool) -> list[Line]:
    pace, counts, total = view.pace, view.pace.counts, view.pace.total
    run = " in this run" if view.resumed else ""
    rates = f"{_rate(pace.rate)} pages/s now, {_rate(pace.mean)} mean{run}"
    if view.store_trouble:
        rates = f"when the store last responded, {duration(view.unavailable_seconds)} ago"
    pages = _labelled("pages", f"{pace.stored:,}", rates)
    lines = [] if counts is None else [_bar(counts, width, bars)]
    if not tall and (space := width - sum(cells(text) for text, _ in pages) - 2) >= 10:
        values, _ = pace.rates(min(space, 60))
        pages += [("  ", ""), (graph(values, 1, bars)[0], "graph")]
    lines.append(pages)
    lines.append(
        _labelled("received", size(total.bytes), f"{size(pace.bytes_per_second)}/s" + (f",{run}" if run else ""))
    )
    if counts is not None:
        parts = [("waiting", counts.waiting), ("with workers", counts.leased), ("to retry later", counts.later)]
        text = ", ".join(f"{number:,} {word}" for word, number in parts if number)
        lines.append(_labelled("remaining", f"{counts.open:,}", text))
        lines.append(_reasons("failed", counts.failed, counts.reasons, width, "bad"))
        lines.append(_reasons("excluded", counts.excluded, counts.reasons, width, ""))
    ready, cooling = pace.hosts
    hosts = f"{ready:,} ready, {cooling:,} cooling down, {total.backing_off:,} backing off"
    lines.append(_labelled("hosts", f"{pace.open_hosts:,} open", hosts))
    shares = ", ".join(f"{name} {share:.0%}" for name, share in pace.limits() if share >= 0.01)
    lines.append(_labelled("bottleneck", "", shares or "not known yet"))
    if pace.pending:
        lines.append(_labelled("waiting for", "", visible(pending_text(pace.pending))))
    if trouble := view.store_trouble or total.trouble:
        lines.append([(f"{'trouble':<{_LABEL}}", "faint"), (visible(trouble), "bad")])
    if tall:
        lines += _tall_graph(pace, width, bars)
    return lines


def pending_text(pending: Sequence[PendingHost]) -> str:
    """Return the host with the longest wait, the time and the reason, and the number of other hosts."""
    first, others = pending[0], len(pending) - 1
    reason = f" ({first.reason})" if first.reason else ""
    more = f", and {others:,} other host{'' if others == 1 else 's'}" if others else ""
    return f"{first.host} for {approx_duration(first.seconds)}{reason}{more}"


def _labelled(label: str, value: str, details: str, look: str = "strong") -> Line:
    line: Line = [(f"{label:<{_LABEL}}", "faint")]
    if value:
        line.append((f"{value:<11} ", look))
    return [*line, (details, "")]


def _reasons(word: str, number: int, reasons: Mapping[str, int], width: int, look: str) -> Line:
    """Format a count and as many of its reasons as fit, the most frequent first."""
    counts = sorted(((count, name.partition(":")[2]) for name, count in reasons.items() if name.startswith(f"{word}:")))
    room, shown = width - _LABEL - 12, ""
    left = number
    while counts:
        count, name = counts[-1]
        part = f"{', ' if shown else ''}{count:,} {visible(name)}"
        # The last reason needs no room for "others".
        if cells(shown + part) > room - (len(", 123,456 others") if len(counts) > 1 else 0):
            break
        counts.pop()
        shown, left = shown + part, left - count
    if counts:
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
    """Return a bar chart as rows of text, the top row first; the largest value fills all rows."""
    top, levels = max(values, default=0.0), len(bars) - 1
    heights = [round(value / top * rows * levels) if top else 0 for value in values]
    # A small value is still visible.
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
    ago = f"{approx_duration(each * len(values))} ago"
    if len(values) > len(ago) + 5:
        lines.append([(" " * widest + ago + "now".rjust(len(values) - len(ago)), "faint")])
    return lines


def _table(workers: list[Row], width: int, room: int, prefix: str) -> list[Line]:
    """Return a heading and at most `room` rows of workers, two side by side if they fit and are needed."""
    head = f"{'worker':>6} {'pid':>8} {'pages':>11} {'pages/s':>8} {'hosts':>6} {'CPU':>6}  waiting for"
    beside = max(1, min((width + 2) // (_ROW_WIDTH + 2), -(-len(workers) // max(1, room))))
    shown = workers if len(workers) <= room * beside else workers[: max(0, room - 1) * beside]
    each = -(-len(shown) // beside)
    lines: list[Line] = [[((f"{head:<{_ROW_WIDTH}}  " * beside).rstrip(), "faint")]]
    for number in range(each):
        parts = [shown[column] for column in range(number, len(shown), each)]
        texts = [_row(worker, prefix) for worker in parts]
        clip = [(f"{text[:_ROW_WIDTH]:<{_ROW_WIDTH}}  " if beside > 1 else text) for text in texts]
        lines.append([("".join(clip).rstrip(), "")])
    if hidden := workers[len(shown) :]:
        pages, rate = sum(worker.pages for worker in hidden), sum(worker.rate for worker in hidden)
        lines.append([(f"and {len(hidden):,} more, with {pages:,} pages and {_rate(rate)} pages/s", "faint")])
    return lines


def _row(worker: Row, prefix: str) -> str:
    name = worker.name.removeprefix(prefix).lstrip("-")[-6:]
    return (
        f"{name:>6} {worker.pid:>8} {worker.pages:>11,} {_rate(worker.rate):>8} {worker.hosts:>6,} {worker.cpu:>6.0%}  "
        f"{visible(worker.waits)}"
    )


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
