"""The crash marker: which visit a worker is parsing, in a memory-mapped file that survives the process.

A page that kills its worker (a crash in C, memory, an endless loop) leaves no exception to catch. The supervisor reads
the marker of a dead worker and counts the crash against that visit alone. Setting it costs about a microsecond.
"""

from __future__ import annotations

import mmap
import signal
import struct
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Any, Generic, TypeVar

_HEAD = struct.Struct("<HQ")
_SIZE = 512
# A spider may block for this many times its CPU time limit.
_WAITS = 20

Result = TypeVar("Result")


class CrashMarker:
    """`set` before a page is parsed, `clear` after it. Parsing may take `seconds` of CPU time, then the process dies.

    A kernel timer ends the process: a loop in C holds the interpreter's lock, so no thread could. With 0 seconds there
    is no timer, for a process that belongs to the user. A spider may also block on a server that never responds, which
    stops everything else in this process, so its blocking time is limited too.
    """

    def __init__(self, path: str, seconds: float) -> None:
        self._seconds = seconds
        # The token of the lease whose page is being parsed; '' if none is.
        self.token = ""
        self._map: mmap.mmap | None = None
        if path:
            with Path(path).open("w+b") as file:
                file.truncate(_SIZE)
                self._map = mmap.mmap(file.fileno(), _SIZE)
        if seconds:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def set(self, token: str, number: int, *, spider: bool = False) -> None:
        self.token = token
        if self._map is not None:
            name = token.encode()
            # The length is written last: a half-written marker is empty.
            self._map[_HEAD.size : _HEAD.size + len(name)] = name
            self._map[: _HEAD.size] = _HEAD.pack(len(name), number)
        if self._seconds:
            signal.setitimer(signal.ITIMER_PROF, self._seconds)
            if spider:
                signal.setitimer(signal.ITIMER_REAL, _WAITS * self._seconds)

    def clear(self, *, spider: bool = False) -> None:
        if self._seconds:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
            if spider:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
        self.token = ""
        if self._map is not None:
            self._map[: _HEAD.size] = b"\0" * _HEAD.size


class MarkedRun(Generic[Result]):
    """Awaits a coroutine with the crash marker set while it runs, and cleared while it waits for something."""

    def __init__(self, work: Coroutine[Any, Any, Result], marker: CrashMarker, token: str, number: int) -> None:
        self._work = work
        self._marker = marker
        self._token = token
        self._number = number

    def __await__(self) -> Generator[Any, Any, Result]:
        value: Any = None
        error: BaseException | None = None
        while True:
            self._marker.set(self._token, self._number, spider=True)
            try:
                waits_for = self._work.send(value) if error is None else self._work.throw(error)
            except StopIteration as stop:
                result: Result = stop.value
                return result
            finally:
                self._marker.clear(spider=True)
            value = error = None
            try:
                value = yield waits_for
            except BaseException as caught:
                error = caught


def read(path: str | Path) -> tuple[str, int]:
    """Return the lease's token and the visit's number; '' and 0 if the worker was parsing nothing."""
    try:
        data = Path(path).read_bytes()
        length, number = _HEAD.unpack_from(data)
        return data[_HEAD.size : _HEAD.size + length].decode("ascii") if length else "", number if length else 0
    except (OSError, ValueError, struct.error):
        return "", 0
