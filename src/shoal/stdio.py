"""Output to a pipe or a terminal whose reader may have stopped: a stopped process, Ctrl-S, a hung connection, a pager.

A write to a full pipe blocks until its reader reads. That must not stop a crawl, so output is dropped once nobody has
read for a second. A reader sees no incomplete line in the middle of the output. Regular files always accept output.
"""

from __future__ import annotations

import io
import os
import select
import threading
import time
from typing import Any

_PATIENCE_SECONDS = 1.0
# A pipe that is ready accepts this many bytes without blocking.
_CHUNK = getattr(select, "PIPE_BUF", 512)


class DroppingWriter(io.RawIOBase):
    """Writes to a descriptor for as long as its reader reads. `write` always accepts everything.

    patience_seconds  how long a write waits for a reader before it is dropped
    notice            write a notice, when the reader reads again, that output was dropped
    """

    def __init__(self, fd: int, *, patience_seconds: float = _PATIENCE_SECONDS, notice: bool = True) -> None:
        self._fd = fd
        self._out = _own_terminal(fd)
        self._patience_seconds = patience_seconds
        self._notice = notice
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLOUT)
        self._lock = threading.Lock()
        # The end of a write whose beginning was sent. It is sent before any other output.
        self._unsent = b""
        self._unread = False
        self._dropped = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def takes_output(self) -> bool:
        """Whether a write would not wait now."""
        return not self._unsent and bool(self._poll.poll(0))

    def write(self, data: Any) -> int:
        data = bytes(data)
        with self._lock:
            if self._unsent and not self._send():
                self._dropped += 1
                return len(data)
            notice = b"(%d messages were dropped because nobody read them.)\n" % self._dropped if self._dropped else b""
            self._unsent = (notice if self._notice else b"") + data
            length = len(self._unsent)
            if self._send():
                self._dropped = 0
            elif len(self._unsent) == length:
                self._unsent = b""
                self._dropped += 1
        return len(data)

    def _send(self) -> bool:
        """Send the unsent bytes. Returns False if they are not read."""
        patience = 0.0 if self._unread else self._patience_seconds
        deadline = time.monotonic() + patience
        while self._unsent:
            left = max(0.0, deadline - time.monotonic())
            count = 0
            if self._poll.poll(left * 1000):
                try:
                    count = os.write(self._out, self._unsent[:_CHUNK])
                except BlockingIOError:
                    # A terminal may be ready for fewer bytes than this.
                    time.sleep(min(left, 0.01))
            if count:
                self._unsent = self._unsent[count:]
                deadline = time.monotonic() + patience
            elif not left:
                self._unread = True
                return False
        self._unread = False
        return True


def _own_terminal(fd: int) -> int:
    """The terminal of a descriptor, opened again, so that non-blocking mode applies only to this process."""
    try:
        if os.isatty(fd):
            return os.open(os.ttyname(fd), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        pass
    return fd
