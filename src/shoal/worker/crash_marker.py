"""The note that survives its writer: which visit a worker is reading, in a file that is mapped into memory.

A page that kills its worker (a crash in C, memory, an endless loop) leaves no exception to catch. The supervisor reads
the note of a dead worker and blames that visit alone, not all that the worker held. A note costs about a microsecond.
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
# For each second that a spider may work, it may block so many.
_WAITS = 20

Result = TypeVar("Result")


class CrashMarker:
    """`note` before a page is read, `clear` after it. Reading may take `seconds` of CPU time, then the process dies.

    A timer of the kernel sees to that: a loop in C holds the interpreter's lock, so that no thread could. With 0
    seconds there is none, for a process that is not ours to end. A spider may also wait where it should not, for a
    server that never answers or for ever: while it does so nothing else here goes on, so that time is limited, too.
    """

    def __init__(self, path: str, seconds: float) -> None:
        self._seconds = seconds
        self._map: mmap.mmap | None = None
        if path:
            with Path(path).open("w+b") as file:
                file.truncate(_SIZE)
                self._map = mmap.mmap(file.fileno(), _SIZE)
        if seconds:
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def note(self, token: str, number: int, *, spider: bool = False) -> None:
        if self._map is not None:
            name = token.encode()
            # The length last: a note that is half written says nothing.
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
        if self._map is not None:
            self._map[: _HEAD.size] = b"\0" * _HEAD.size


class Marked(Generic[Result]):
    """Awaits a coroutine whose visit is to blame whenever it runs, and is not while it waits for something."""

    def __init__(self, work: Coroutine[Any, Any, Result], blame: CrashMarker, token: str, number: int) -> None:
        self._work = work
        self._blame = blame
        self._token = token
        self._number = number

    def __await__(self) -> Generator[Any, Any, Result]:
        value: Any = None
        error: BaseException | None = None
        while True:
            self._blame.note(self._token, self._number, spider=True)
            try:
                waits_for = self._work.send(value) if error is None else self._work.throw(error)
            except StopIteration as stop:
                result: Result = stop.value
                return result
            finally:
                self._blame.clear(spider=True)
            value = error = None
            try:
                value = yield waits_for
            except BaseException as caught:
                error = caught


def read(path: str | Path) -> tuple[str, int]:
    """The lease's token and the visit's number; '' and 0 when the worker was reading nothing."""
    try:
        data = Path(path).read_bytes()
        length, number = _HEAD.unpack_from(data)
        return data[_HEAD.size : _HEAD.size + length].decode("ascii") if length else "", number if length else 0
    except (OSError, ValueError, struct.error):
        return "", 0
