"""Runs the command `shoal` as a user does: in its own folder, as a separate process, judged by the files it leaves.

shell = Shell(folder)
result = shell.run("crawl", url, "--delay", "0")
assert result.code == 0, result.err
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests import forked_workers
from tests.forking import start
from tests.servers import WAIT_SECONDS, alive, wait_until

ROOT = Path(__file__).resolve().parents[2]
LOCAL = ("--allow-network", "127.0.0.0/8")


@dataclass
class Result:
    code: int
    out: str
    err: str

    def __post_init__(self) -> None:
        # Shoal shows tracebacks of a user's spider, never of its own code.
        assert "Traceback" not in self.err or "\nSpider " in f"\n{self.err}", self.err


@dataclass
class Running:
    """A command that runs. `stderr_lines` grows as it writes to stderr."""

    process: subprocess.Popen[str]
    stderr_lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._out: list[str] = []
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [
            threading.Thread(target=lambda: self.stderr_lines.extend(iter(self.process.stderr.readline, ""))),  # type: ignore[union-attr]
            threading.Thread(target=lambda: self._out.extend(iter(self.process.stdout.readline, ""))),  # type: ignore[union-attr]
        ]
        for reader in self._readers:
            reader.start()

    def wait_for_output(self, text: str) -> None:
        wait_until(lambda: any(text in line for line in self.stderr_lines), f"{text!r} in {self.stderr_lines}")

    def workers(self) -> list[int]:
        """Process ids of its worker processes."""
        return [pid for pid in children(self.process.pid) if is_worker(pid)]

    def kill_all(self) -> None:
        """Kill the command and its workers, before it can notice that they die."""
        workers = self.workers()
        self.process.send_signal(signal.SIGSTOP)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def end(self, how: int | None = None, seconds: float = WAIT_SECONDS) -> Result:
        if how is not None:
            self.process.send_signal(how)
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(10)
        return Result(code, "".join(self._out), "".join(self.stderr_lines))


@dataclass
class Shell:
    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    started: list[Running] = field(default_factory=list)

    def start(
        self, *args: object, stdin: str | None = None, program: tuple[str, ...] = ("-m", "shoal"), fork: bool = True
    ) -> Running:
        process = start(
            sys.executable, *program, *map(str, args), cwd=self.folder, text=True,
            environ=self._environ(), fork=fork,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if process.stdin is not None:
            process.stdin.write(stdin or "")
            process.stdin.close()
        self.started.append(Running(process))
        return self.started[-1]

    def run(self, *args: object, stdin: str | None = None, seconds: float = WAIT_SECONDS) -> Result:
        return self.start(*args, stdin=stdin).end(seconds=seconds)

    def call(self, *args: object) -> Result:
        """Run a command in this process. It must end before it starts another process."""
        from shoal.cli.main import run

        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.chdir(self.folder),
            mock.patch.dict(os.environ, self._environ(), clear=True),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as end,
        ):
            run([*map(str, args)])
        code = int(end.value.code or 0)
        return Result(code, out.getvalue(), err.getvalue())

    def _environ(self) -> dict[str, str]:
        """The environment of a user at a terminal: elsewhere, services write JSON."""
        strange = {name for name in os.environ if name.startswith("SHOAL_") or name in ("REDIS_URL", "WORKER_ID")}
        environ = {name: value for name, value in os.environ.items() if name not in strange}
        return {**environ, "SHOAL_LOG": "text", **self.environ}

    def crawl(self, *args: object, **how: Any) -> Result:
        """A crawl of a site on this machine; by one worker if `args` have no other number."""
        workers = () if "--workers" in args else ("--workers", 1)
        return self.run("crawl", *args, *LOCAL, *workers, **how)

    def rows(self, name: str = "pages.db") -> dict[str, dict[str, Any]]:
        with contextlib.closing(sqlite3.connect(self.folder / name)) as connection:
            connection.row_factory = sqlite3.Row
            records = [dict(row) for row in connection.execute("SELECT * FROM pages")]
        assert len({(row["crawl"], row["url"]) for row in records}) == len(records)
        return {row["url"]: row for row in records}

    def lines(self, name: str = "pages.jsonl") -> list[str]:
        """The URLs of a file of JSON lines, in order."""
        return [json.loads(line)["url"] for line in (self.folder / name).read_text().splitlines()]

    def counts(self, crawl: str, *where: str) -> dict[str, Any]:
        result = self.run("show", crawl, "--json", *where)
        assert result.code == 0, result.err
        status: dict[str, Any] = json.loads(result.out)
        return status

    def close(self) -> None:
        """Kill everything that was started: nothing outlives a test."""
        for running in self.started:
            pids = running.workers()
            if running.process.poll() is None:
                running.process.kill()
            running.end()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if (self.folder / ".shoal/store/keeper.lock").exists():
            supervisor = (self.folder / ".shoal/store/keeper.lock").read_text()
            wait_until(lambda: not supervisor or not alive(int(supervisor)), "the embedded store stops")


def children(pid: int) -> list[int]:
    pids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                pids.append(int(path.parent.name))
    return pids


def is_worker(pid: int) -> bool:
    """By its command line, or by the name that a forked worker gives itself."""
    return b"shoal.worker" in command_line(pid) or forked_workers.is_forked(pid)


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
