"""One worker process: its start, its start-up message, its reports, its end.

Owns the pipes. The start-up message goes through stdin, because it has passwords and every user can read a command
line. Stdin then stays open: a worker whose supervisor was killed finds it closed. The process has its own session, so
Ctrl-C reaches only the supervisor. supervisor.py decides whether a process is started again.
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

from shoal.fleet.worker_files import WorkerFiles
from shoal.model.worker_report import RequestLine, WorkerReport
from shoal.worker.startup import StartupConfig

# -P: a file msgspec.py in the current folder must not shadow the library.
PROGRAM = (sys.executable, "-P", "-m", "shoal.worker")
_LONGEST_LINE = 1_000_000


class WorkerProcess:
    """A worker process. `report` is the last one that it published."""

    def __init__(
        self, name: str, files: WorkerFiles, child: asyncio.subprocess.Process,
        on_report: Callable[[WorkerReport], None],
    ) -> None:  # fmt: skip
        self.name = name
        self.files = files
        self.report: WorkerReport | None = None
        self.started_mono = self.reported_mono = time.monotonic()
        self.killed = False
        self._child = child
        self._on_report = on_report

    @classmethod
    async def start(
        cls,
        name: str,
        folder: Path,
        *,
        on_line: Callable[[str, str], None],
        on_report: Callable[[WorkerReport], None],
        on_request: Callable[[str, RequestLine], None] | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> WorkerProcess:
        """Start a process, which works when it has its start-up message.

        `on_line` is called with the worker's name and each line that it writes for people, `on_request` with each
        request that it logs.
        """
        files = WorkerFiles.create(folder, name)
        try:
            child = await asyncio.create_subprocess_exec(
                *program,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                pass_fds=(files.lock_fd,),
            )
        except BaseException:
            files.remove()
            raise
        finally:
            files.hand_over()
        process = cls(name, files, child, on_report)
        process._on_request = on_request
        process._reading = asyncio.gather(process._read_reports(on_line), process._read_lines(on_line))
        return process

    _reading: asyncio.Future[Any]
    _on_request: Callable[[str, RequestLine], None] | None = None

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive_seconds(self) -> float:
        return time.monotonic() - self.started_mono

    def configure(
        self, settings: dict[str, Any], spiders: Mapping[str, str], *, plain: bool, shared: bool,
        log_requests: bool = False,
    ) -> None:  # fmt: skip
        """Send the start-up message, the first line on stdin."""
        stdin = self._child.stdin
        if stdin is not None and not stdin.is_closing():
            config = StartupConfig(
                name=self.name, settings=settings, crash_marker=str(self.files.crash_path), spiders=dict(spiders),
                plain=plain, shared=shared, log_requests=log_requests,
            )  # fmt: skip
            stdin.write(config.line())

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self.killed = True
        self._signal(signal.SIGKILL)

    def _signal(self, how: signal.Signals) -> None:
        # Through this object, which knows whether the process has ended: its pid may be in use again.
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(how)

    async def wait(self) -> int:
        """Return the exit code, negative for a signal, after all output was read."""
        code = await self._child.wait()
        # A child process of the worker could hold the pipes open without end.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._reading, 1.0)
        if self._child.stdin is not None:
            self._child.stdin.close()
        return code

    async def _read_reports(self, on_line: Callable[[str, str], None]) -> None:
        assert self._child.stdout is not None  # noqa: S101 - it is a pipe
        async for line in _lines(self._child.stdout):
            try:
                if (request := RequestLine.of(line)) is not None:
                    if self._on_request is not None:
                        self._on_request(self.name, request)
                    continue
                self.report = WorkerReport.of(line)
                self.reported_mono = time.monotonic()
            except msgspec.MsgspecError:
                # A library printed it.
                on_line(self.name, line.decode("utf-8", "replace"))
            else:
                self._on_report(self.report)

    async def _read_lines(self, on_line: Callable[[str, str], None]) -> None:
        assert self._child.stderr is not None  # noqa: S101 - it is a pipe
        async for line in _lines(self._child.stderr):
            on_line(self.name, line.decode("utf-8", "replace"))


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Lines without line breaks. A line longer than any report is split, so that memory stays bounded."""
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


def describe_exit(code: int) -> str:
    """How a process ended, e.g. "exit code 1"."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
