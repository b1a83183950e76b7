"""Lines at the bottom of a terminal that are drawn again and again, while what is said scrolls by above them.

Nothing of the terminal is switched: no other screen, no hidden cursor, no raw mode. So there is nothing to restore,
however the process ends; even kill -9 leaves the cursor below the last frame. Each frame is one write, and overwrites
the one before line by line, so that nothing flickers.

A terminal that becomes narrower wraps the lines that are there, or cuts them, at a moment of its own: nobody knows
where they are then. When its size has settled, the screen is cleared, and the last messages are written once more above
the frame: none is lost. Any other change of size leaves the frame where it was, above the cursor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping

from shoal.cli.ui.console import lines_of, speak_through, write
from shoal.cli.ui.frame import BARS, PLAIN_BARS, Line, cells, painted

_FRAME_SECONDS = 0.25
# Terminals that know it show all of a frame at once; others ignore it.
_HOLD, _SHOW = "\x1b[?2026h", "\x1b[?2026l"
_CLEAR = "\x1b[H\x1b[2J"
_MESSAGES = 100


class LiveArea:
    """Draws `frame(columns, rows)` four times a second between `start` and `stop`."""

    def __init__(self, frame: Callable[[int, int, str], list[Line]]) -> None:
        self._frame = frame
        self._colours = not os.environ.get("NO_COLOR")
        encoding = (sys.stderr.encoding or "").lower().replace("-", "")
        self._bars = BARS if encoding == "utf8" else PLAIN_BARS
        # What is on the screen: the frame, the width of each of its lines, and the size of the terminal then.
        self._last = ""
        self._drawn: list[int] = []
        self._size = _size()
        self._said: deque[str] = deque(maxlen=_MESSAGES)
        self._drawing: asyncio.Task[None] | None = None

    def start(self) -> None:
        speak_through(self._say)
        # After Ctrl-Z and fg, what we had drawn is somewhere above what the shell wrote.
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, self._forget)
        self._drawing = asyncio.create_task(self._draw_again())

    def stop(self) -> None:
        """Take the frame away; what is said next comes in its place."""
        if self._drawing is None:
            return
        self._drawing.cancel()
        self._drawing = None
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCONT)
        speak_through(None)
        write(self._above())
        self._forget()

    async def _draw_again(self) -> None:
        while True:
            self.draw()
            await asyncio.sleep(_FRAME_SECONDS)

    def draw(self) -> None:
        if not _in_front():
            return
        was, self._size = self._size, _size()
        if was != self._size:
            # Somebody pulls at a corner: the next turn may find it settled.
            return
        lines = self._frame(*self._size, self._bars)
        text = "".join(f"{painted(line, colours=self._colours)}\x1b[K\n" for line in lines)
        if text == self._last:
            return
        if max(self._drawn, default=0) > self._size[0]:
            write(f"{_HOLD}{_CLEAR}{self._again(len(lines))}{text}{_SHOW}")
        else:
            write(f"{_HOLD}\r{self._up()}{text}\x1b[J{_SHOW}")
        self._drawn = [sum(cells(part) for part, _ in line) for line in lines]
        self._last = text

    def _again(self, taken: int) -> str:
        """The last messages, as many as fit above a frame of so many rows."""
        columns, rows = self._size
        room, found = rows - taken - 1, ""
        for text in reversed(self._said):
            room -= sum(max(1, -(-cells(line) // columns)) for line in text.splitlines())
            if room < 0:
                break
            found = text + found
        return found

    def _say(self, text: str, level: str, event: str, fields: Mapping[str, object]) -> None:
        lines = lines_of(text, level)
        self._said.append(lines)
        write(f"{_HOLD}{self._above()}{lines}{self._last}{_SHOW}")

    def _above(self) -> str:
        """To the place where the frame begins, and everything away from there on."""
        return f"\r{self._up()}\x1b[J" if self._drawn else ""

    def _up(self) -> str:
        return f"\x1b[{len(self._drawn)}A" if self._drawn else ""

    def _forget(self) -> None:
        self._drawn, self._last = [], ""


def _size() -> tuple[int, int]:
    """Columns and rows of the terminal that stderr is, whatever variables say."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found = os.get_terminal_size(sys.stderr.fileno())
        if found.columns > 0 and found.lines > 0:
            return found.columns, found.lines
    fallback = shutil.get_terminal_size()
    return fallback.columns, fallback.lines


def _in_front() -> bool:
    """Not while another job has the terminal: `shoal crawl &` says what it has to say, and draws nothing."""
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return True
