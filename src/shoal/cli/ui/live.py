"""Lines at the bottom of a terminal that are redrawn, while messages scroll above them.

No terminal mode is changed: no alternate screen, no hidden cursor, no raw mode. So nothing has to be restored when the
process ends; even kill -9 leaves the cursor below the last frame. Each frame is one write and overwrites the previous
one line by line, so nothing flickers.

A terminal that becomes narrower wraps or cuts existing lines, and their position is unknown. Once its size is stable,
the screen is cleared and the last messages are written again above the frame. Any other change of size leaves the frame
above the cursor.
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

from shoal.cli.ui.console import format_lines, set_renderer, takes_output, write
from shoal.cli.ui.frame import BARS, PLAIN_BARS, Line, cells, paint

_FRAME_SECONDS = 0.25
# Synchronized output: terminals that support it show a frame at once; others ignore it.
_HOLD, _SHOW = "\x1b[?2026h", "\x1b[?2026l"
_CLEAR = "\x1b[H\x1b[2J"
_MESSAGES = 100


class LiveArea:
    """Draws `frame(columns, rows)` four times per second between `start` and `stop`."""

    def __init__(self, frame: Callable[[int, int, str], list[Line]]) -> None:
        self._frame = frame
        self._colours = not os.environ.get("NO_COLOR")
        encoding = (sys.stderr.encoding or "").lower().replace("-", "")
        self._bars = BARS if encoding == "utf8" else PLAIN_BARS
        # The last drawing: the frame, the width of each of its lines, and the size of the terminal at that time.
        self._last = ""
        self._drawn: list[int] = []
        self._size = _size()
        self._messages: deque[str] = deque(maxlen=_MESSAGES)
        self._drawing: asyncio.Task[None] | None = None

    def start(self) -> None:
        set_renderer(self._render)
        # After Ctrl-Z and fg, the last frame is somewhere above the output of the shell.
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, self._forget)
        self._drawing = asyncio.create_task(self._redraw())

    def stop(self) -> None:
        """Remove the frame; the next message takes its place."""
        if self._drawing is None:
            return
        self._drawing.cancel()
        self._drawing = None
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCONT)
        set_renderer(None)
        write(self._above())
        self._forget()

    async def _redraw(self) -> None:
        while True:
            self.draw()
            await asyncio.sleep(_FRAME_SECONDS)

    def draw(self) -> None:
        if not _in_foreground() or not takes_output():
            return
        was, self._size = self._size, _size()
        if was != self._size:
            # The window is being resized: wait until its size is stable.
            return
        lines = self._frame(*self._size, self._bars)
        text = "".join(f"{paint(line, colours=self._colours)}\x1b[K\n" for line in lines)
        if text == self._last:
            return
        if max(self._drawn, default=0) > self._size[0]:
            write(f"{_HOLD}{_CLEAR}{self._last_messages(len(lines))}{text}{_SHOW}")
        else:
            write(f"{_HOLD}\r{self._up()}{text}\x1b[J{_SHOW}")
        self._drawn = [sum(cells(part) for part, _ in line) for line in lines]
        self._last = text

    def _last_messages(self, taken: int) -> str:
        """Return the last messages, as many as fit above a frame of `taken` rows."""
        columns, rows = self._size
        room, messages = rows - taken - 1, ""
        for text in reversed(self._messages):
            room -= sum(max(1, -(-cells(line) // columns)) for line in text.splitlines())
            if room < 0:
                break
            messages = text + messages
        return messages

    def _render(self, text: str, level: str, event: str, fields: Mapping[str, object]) -> None:
        lines = format_lines(text, level)
        self._messages.append(lines)
        write(f"{_HOLD}{self._above()}{lines}{self._last}{_SHOW}")

    def _above(self) -> str:
        """Return the codes that move to the first line of the frame and erase from there."""
        return f"\r{self._up()}\x1b[J" if self._drawn else ""

    def _up(self) -> str:
        return f"\x1b[{len(self._drawn)}A" if self._drawn else ""

    def _forget(self) -> None:
        self._drawn, self._last = [], ""


def _size() -> tuple[int, int]:
    """Return columns and rows of the terminal on stderr, regardless of COLUMNS and LINES."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        terminal = os.get_terminal_size(sys.stderr.fileno())
        if terminal.columns > 0 and terminal.lines > 0:
            return terminal.columns, terminal.lines
    fallback = shutil.get_terminal_size()
    return fallback.columns, fallback.lines


def _in_foreground() -> bool:
    """Whether this process is in the foreground: `shoal crawl &` prints messages but draws nothing."""
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return True
