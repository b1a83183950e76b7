"""A real server for one measurement: started on a Unix socket in its own folder, measured, stopped."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from redis import Redis
from redis.exceptions import ConnectionError as NotThere

from shoal.store.embedded import find_server, half_of_memory

# Commands that a client sends; every other command in the statistics was called by a script.
SENT = ("evalsha", "eval", "script|load", "subscribe", "unsubscribe", "ping", "hello", "auth", "wait", "publish")
_START_SECONDS = 20.0


class Server:
    """One server: `program`, if it is set. `durable`: configured like the embedded store; else it writes nothing."""

    program = ""

    def __init__(self, *, durable: bool) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="shoal-bench-")
        folder = Path(self._folder.name)
        self.socket = str(folder / "s")
        options = {
            "port": "0",
            "unixsocket": self.socket,
            "unixsocketperm": "700",
            "dir": str(folder),
            "daemonize": "no",
            "appendonly": "yes" if durable else "no",
            "appendfsync": "always",
            "save": "",
            "maxmemory": half_of_memory(),
            "maxmemory-policy": "noeviction",
        }
        argv = [find_server(self.program)]
        for name, value in options.items():
            argv += [f"--{name}", value]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.redis = Redis(unix_socket_path=self.socket)
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if time.monotonic() > until or self._process.poll() is not None:
                message = (folder / "log").read_text()
                self.stop()
                raise RuntimeError(f"The server did not start:\n{message}")
            time.sleep(0.02)

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def info(self, section: str) -> dict[str, Any]:
        return dict(self.redis.info(section))

    def cpu_seconds(self) -> float:
        """User and system time of the server process; without children that rewrite the append-only file."""
        cpu = self.info("cpu")
        return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])

    def memory(self) -> tuple[int, int]:
        """`used_memory` and resident bytes."""
        memory = self.info("memory")
        return int(memory["used_memory"]), int(memory["used_memory_rss"])

    def calls(self) -> dict[str, int]:
        """How often each command ran, also inside scripts."""
        stats = self.info("commandstats")
        return {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in stats.items()}

    def persist(self) -> None:
        """Apply the embedded store's settings after a fill, which is faster without them, and wait for their effect."""
        self.redis.config_set("appendonly", "yes")
        self.settle()

    def settle(self) -> None:
        """Return when no child rewrites the append-only file: it would take one of two cores."""
        while True:
            persistence = self.info("persistence")
            if not persistence["aof_rewrite_in_progress"] and not persistence["aof_rewrite_scheduled"]:
                return
            time.sleep(0.1)

    def version(self) -> str:
        server = self.info("server")
        name = "Valkey" if "valkey_version" in server else "Redis"
        number = server.get("valkey_version") or server["redis_version"]
        return f"{name} {number} (memory from {self.info('memory')['mem_allocator']})"

    def stop(self) -> None:
        self.redis.close()
        if self._process.poll() is None:
            # A clean stop is not needed: the store survives crashes, and the folder is deleted.
            self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def _answers(self) -> bool:
        try:
            return bool(self.redis.ping())
        except NotThere:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
