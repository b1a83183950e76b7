"""Starts Python programs by forking a process that has imported them: imports take most of a short test's time.

The programs are processes like any others: with their own session, folder, environment and standard streams, and killed
like any others. Only `ps` shows the command line of the process that was forked.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, AnyStr, NoReturn

# What the programs of a package import in any case. None of it starts a thread or installs Twisted's reactor.
PRELOADED = {
    "shoal": (
        "shoal.cli.crawl_runner", "shoal.cli.main", "shoal.fleet.supervisor", "shoal.operations.merge_outputs",
        "shoal.sinks.files.jsonl", "shoal.sinks.reader", "shoal.sinks.sql.sqlite", "shoal.worker.process",
        *(f"shoal.cli.commands.{name}" for name in ("crawl", "crawls", "export", "failed", "hosts", "show", "state")),
        "shoal.api.server",
    ),
    "tests": (
        "tests.chaos.worker", "tests.sinks.archiver", "tests.sinks.writer", "shoal.sinks.files.csv",
        "shoal.sinks.files.jsonl", "shoal.sinks.sql.mysql", "shoal.sinks.sql.postgresql",
        "shoal.sinks.sql.sqlite", "shoal.sinks.streams.amqp", "shoal.sinks.streams.kafka", "shoal.sinks.streams.redis",
        "aio_pika", "asyncmy", "asyncpg", "confluent_kafka",
    ),
    "scrapy": (
        "scrapy.cmdline", "scrapy.commands.crawl", "scrapy.commands.runspider", "scrapy.core.downloader.contextfactory",
        "scrapy.core.downloader.handlers.http11", "scrapy.core.engine", "scrapy.core.scheduler", "scrapy.crawler",
        "scrapy.extensions.closespider", "scrapy.extensions.feedexport", "scrapy.extensions.logstats",
        "scrapy.extensions.memusage", "scrapy.pipelines.files", "scrapy.selector", "scrapy.spiders.crawl",
        "shoal.scrapy.scheduler", "twisted.internet.asyncioreactor", "twisted.web.client",
    ),
}  # fmt: skip


ROOT = Path(__file__).resolve().parent.parent
# Variables that Python or the loader reads when a process starts.
_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "FAKETIME")


def start(*argv: str, environ: Mapping[str, str] = os.environ, fork: bool = True, **how: Any) -> subprocess.Popen[Any]:
    """Start a program of this checkout in a session of its own; by forking, if it is one of those above.

    It is not forked if Python would start otherwise in `environ` than in the environment of the tests.
    """
    paths = [str(ROOT / "src"), str(ROOT), environ.get("PYTHONPATH", "")]
    env = {**environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    is_module = argv[0] == sys.executable and argv[1] == "-m"
    if fork and is_module and _is_preloaded(*argv[2:]) and _at_start(env) == _AS_HERE:
        return Forked(*argv[2:], env=env, start_new_session=True, **how)
    return subprocess.Popen(argv, env=env, start_new_session=True, **how)


def _is_preloaded(module: str, *words: str) -> bool:
    package = module.partition(".")[0]
    # Other commands of Scrapy install a reactor while they are imported.
    return package in PRELOADED and (package != "scrapy" or words[0] in ("crawl", "runspider"))


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START) and name != "PYTHONPATH"}


_AS_HERE = _at_start(os.environ)
# Signals that a shell may ignore for a command, as nohup does, and how Python handles them otherwise.
_DEFAULTS: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}


class Forked(subprocess.Popen[AnyStr]):
    """A process like those of `subprocess.Popen`, that runs `python -m MODULE`."""

    def __init__(self, module: str, *words: str, env: dict[str, str], **how: Any) -> None:
        self._ended = threading.Event()
        super().__init__([module, *words], env=env, **how)

    def _execute_child(self, args: list[str], *how: Any) -> None:
        # The order of the arguments is the same from Python 3.11 to 3.14.
        _, _, _, _, folder, env, _, _, _, *rest = how
        pipes, start_new_session = rest[:6], rest[11]
        request = {
            "module": args[0], "words": args[1:], "folder": str(folder or Path.cwd()), "environment": env,
            "session": start_new_session,
            "ignored": [number for number in _DEFAULTS if signal.getsignal(number) is signal.SIG_IGN],
        }  # fmt: skip
        streams = [pipe if pipe >= 0 else number for number, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        try:
            self.pid = _parent_of(args[0], env).start(self, request, streams)
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        self._child_created = True

    def end(self, status: int) -> None:
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set()

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode


class Parent:
    """The process that is forked. Requests go to it on a socket, with the standard streams of the new process."""

    def __init__(self, package: str, environment: dict[str, str]) -> None:
        self._socket, its = socket.socketpair()
        argv = [sys.executable, "-m", "tests.forking", package, str(its.fileno())]
        with its:
            self._popen = subprocess.Popen(argv, cwd="/", env=environment, pass_fds=[its.fileno()])
        self._replies = self._socket.makefile("r")
        self._lock = threading.Lock()
        self._starting: Forked[Any] | None = None
        self._started: dict[int, Forked[Any]] = {}
        self._forked = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def start(self, process: Forked[Any], request: dict[str, Any], streams: list[int]) -> int:
        data = json.dumps(request).encode()
        with self._lock:
            self._starting = process
            self._forked.clear()
            socket.send_fds(self._socket, [len(data).to_bytes(4, "big")], streams)
            self._socket.sendall(data)
            assert self._forked.wait(60), "no process was forked"
            return process.pid

    def _read(self) -> None:
        for line in self._replies:
            event, pid, status = json.loads(line)
            if event == "started":
                assert self._starting is not None
                self._started[pid] = self._starting
                self._starting.pid = pid
                self._forked.set()
            else:
                self._started.pop(pid).end(status)


_parents: dict[tuple[str, str], Parent] = {}
_lock = threading.Lock()


def _parent_of(module: str, environment: dict[str, str]) -> Parent:
    key = module.partition(".")[0], environment["PYTHONPATH"]
    with _lock:
        if key not in _parents:
            _parents[key] = Parent(key[0], environment)
        return _parents[key]


def _run(**request: Any) -> NoReturn:
    """Run the program and exit as Python does, but do not free every object first: that takes half of a short run."""
    code: Any = 0
    try:
        _become(**request)
    except SystemExit as error:
        code = error.code or 0
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = 120
    os._exit(code)


def _become(
    module: str, words: list[str], folder: str, environment: dict[str, str], session: bool, ignored: list[int]
) -> None:
    """Become the program. What remains of the parent is what it has imported."""
    for number, handler in _DEFAULTS.items():
        signal.signal(number, signal.SIG_IGN if number in ignored else handler)
    if session:
        os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    tempfile.tempdir = None
    # As Python opens them: a program may replace them.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1 if os.isatty(1) else -1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.path[0] = folder
    sys.argv = [module, *words]
    if module == "shoal":
        from tests import forked_workers

        forked_workers.install()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _serve(package: str, number: int) -> NoReturn:
    for name in PRELOADED[package]:
        importlib.import_module(name)
    assert "twisted.internet.reactor" not in sys.modules
    # A thread would be missing in the forked process.
    tasks = Path("/proc/self/task")
    assert not tasks.exists() or len([*tasks.iterdir()]) == 1
    gc.freeze()
    requests = socket.socket(fileno=number)

    def reply(*event: Any) -> None:
        requests.sendall(json.dumps(event).encode() + b"\n")

    def reap(*_: Any) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            reply("ended", pid, status)

    signal.signal(signal.SIGCHLD, reap)
    while True:
        size, streams, _, _ = socket.recv_fds(requests, 4, 3)
        if not size:
            sys.exit()
        data = b""
        while len(data) < int.from_bytes(size, "big"):
            data += requests.recv(int.from_bytes(size, "big") - len(data))
        # A process that ends at once is reported after its start.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            for standard, stream in enumerate(streams):
                os.dup2(stream, standard)
                os.close(stream)
            requests.close()
            _run(**json.loads(data))
        for stream in streams:
            os.close(stream)
        reply("started", pid, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
