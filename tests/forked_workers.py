"""Lets a forked `shoal` command fork its workers, too: a short-lived worker spends most of its time on imports.

A worker is a child of the command, with its own session, pipes and signal handlers, as if the command had started it.
Spiders, which the command may have imported, are imported again.
"""

from __future__ import annotations

import asyncio
import asyncio.unix_events
import contextlib
import gc
import os
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

from shoal.fleet.worker_process import PROGRAM

_NAME = "shoal.worker"
_SOURCES = Path(__file__).resolve().parent.parent / "src"
# Modules from elsewhere are the user's.
_SHARED = tuple(f"{folder}{os.sep}" for folder in (sys.prefix, sys.base_prefix, _SOURCES))


def is_forked(pid: int) -> bool:
    """Whether a process is a worker that was forked."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == _NAME
    except OSError:
        return False


def install() -> None:
    """From now on, the event loop of this process forks workers."""
    asyncio.unix_events.subprocess = _Subprocess()  # type: ignore[attr-defined]


class _Subprocess:
    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, args: Any, **how: Any) -> subprocess.Popen[bytes]:
        kind = _ForkedWorker if tuple(args) == PROGRAM and _may_fork() else subprocess.Popen
        return kind(args, **how)


def _may_fork() -> bool:
    """Whether no thread works that a fork would interrupt, e.g. one that has an SQLite file open."""
    others = set(threading.enumerate()) - {threading.main_thread()}
    # Those of the event loop only wait: for the end of a worker, or for a function to call.
    return all(thread.name.startswith("asyncio") for thread in others)


class _ForkedWorker(subprocess.Popen[bytes]):
    def _execute_child(self, args: list[str], *how: Any) -> None:
        # The order of the arguments is the same from Python 3.11 to 3.14.
        pass_fds, pipes = how[3], how[9:15]
        self.pid = os.fork()
        if not self.pid:
            _become_worker([pipes[0], pipes[3], pipes[5]], set(pass_fds))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def _become_worker(streams: list[int], kept: set[int]) -> NoReturn:
    try:
        # Objects of the command's event loop must not be freed: they would close files that are the worker's.
        gc.freeze()
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for standard, stream in enumerate(streams):
            os.dup2(stream, standard)
        first = 3
        for descriptor in [*sorted(kept), os.sysconf("SC_OPEN_MAX")]:
            os.closerange(first, descriptor)
            first = descriptor + 1
        asyncio._set_running_loop(None)
        asyncio.set_event_loop(None)
        for name, module in [*sys.modules.items()]:
            file = getattr(module, "__file__", None)
            if file and not file.startswith(_SHARED):
                del sys.modules[name]
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        # As with -P.
        del sys.path[0]
        sys.argv = [_NAME]
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text(_NAME)
        runpy.run_module(_NAME, run_name="__main__", alter_sys=True)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(1)
