"""One worker process: started, given its orders, listened to, ended.

Owns the pipes. Orders go through stdin, because they hold passwords and a command line can be read by everybody; stdin
then stays open, so that a worker whose supervisor was killed finds it closed. The process has a session of its own:
Ctrl-C reaches the supervisor alone, which decides. Whether it is started again is for supervisor.py to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shoal.fleet.worker_files import Trace
from shoal.model.worker_report import WorkerReport
from shoal.worker.startup import StartupConfig

# -P: a file msgspec.py in the folder of the crawl must not be taken for the library.
PROGRAM = (sys.executable, "-P", "-m", "shoal.worker")
_LONGEST_LINE = 1_000_000


class WorkerProcess:
    """A worker process from its start to its end. `report` is the last thing it told of itself."""

    def __init__(
        self, name: str, trace: Trace, child: asyncio.subprocess.Process, heard: Callable[[WorkerReport], None]
    ) -> None:
        self.name = name
        self.trace = trace
        self.report: WorkerReport | None = None
        self.started_mono = time.monotonic()
        self.killed = False
        self._child = child
        self._heard = heard

    @classmethod
    async def start(
        cls,
        name: str,
        folder: Path,
        *,
        said: Callable[[str, str], None],
        heard: Callable[[WorkerReport], None],
        program: Sequence[str] = PROGRAM,
    ) -> WorkerProcess:
        """The process loads, and works when it has its orders. `said` gets its name and each line it writes."""
        trace = Trace.begin(folder, name)
        try:
            child = await asyncio.create_subprocess_exec(
                *program,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                pass_fds=(trace.lock_fd,),
            )
        except BaseException:
            trace.end()
            raise
        finally:
            trace.hand_on()
        process = cls(name, trace, child, heard)
        process._ears = asyncio.gather(process._hear_reports(said), process._hear_words(said))
        return process

    _ears: asyncio.Future[Any]

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive_seconds(self) -> float:
        return time.monotonic() - self.started_mono

    def order(self, settings: dict[str, Any], spiders: Mapping[str, str], *, plain: bool, shared: bool) -> None:
        """What to do, as its first line of stdin."""
        stdin = self._child.stdin
        if stdin is not None and not stdin.is_closing():
            orders = StartupConfig(
                name=self.name, settings=settings, crash_marker=str(self.trace.blame), spiders=dict(spiders),
                plain=plain, shared=shared,
            )  # fmt: skip
            stdin.write(orders.line())

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self.killed = True
        self._signal(signal.SIGKILL)

    def _signal(self, how: signal.Signals) -> None:
        # By this object, which knows whether the process was waited for: a pid may be somebody else's by now.
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(how)

    async def wait(self) -> int:
        """Its exit code, negative for a signal, after the last of what it said was read."""
        code = await self._child.wait()
        # A child of the worker that lives on could hold the pipes open for ever.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ears, 1.0)
        if self._child.stdin is not None:
            self._child.stdin.close()
        return code

    async def _hear_reports(self, said: Callable[[str, str], None]) -> None:
        assert self._child.stdout is not None  # noqa: S101 - it is a pipe
        async for line in _lines(self._child.stdout):
            try:
                self.report = WorkerReport.of(line)
            except msgspec.MsgspecError:
                # Something that a library printed.
                said(self.name, line.decode("utf-8", "replace"))
            else:
                self._heard(self.report)

    async def _hear_words(self, said: Callable[[str, str], None]) -> None:
        assert self._child.stderr is not None  # noqa: S101 - it is a pipe
        async for line in _lines(self._child.stderr):
            said(self.name, line.decode("utf-8", "replace"))


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Lines without their ends. A longer one than any report is cut into pieces: memory stays bounded."""
    rest = b""
    while chunk := await stream.read(65536):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
        if len(rest) > _LONGEST_LINE:
            yield rest
            rest = b""
    if rest.strip():
        yield rest


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
