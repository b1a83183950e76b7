"""Starts real Scrapy processes on spiders of tests/scrapy/spiders, and reads what their pipeline has stored.

The core behaviours run on the oldest Scrapy too (the fixture `scrapy`). OTHER_SCRAPY names a folder with another one to
put first on the path of all other processes: that is how the whole folder of tests is run on any release.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.forking import start
from tests.servers import WAIT_SECONDS, wait_until

ROOT = Path(__file__).resolve().parents[2]
SPIDERS = Path(__file__).parent / "spiders"
# A console would take a port at which a client of another test waits for its server.
QUIET = {"TELNETCONSOLE_ENABLED": 0, "REMOTE_CONTROL_ENABLED": 0}


@dataclass
class Process:
    popen: subprocess.Popen[bytes]
    log: Path

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def end(self, seconds: float = WAIT_SECONDS) -> str:
        """Wait until it closes by itself; returns its log."""
        try:
            self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not close by itself; its log ends: {self.output()[-3000:]}") from None
        return self.output()

    def stat(self, name: str) -> int:
        """A number out of the statistics that Scrapy logs at the end."""
        for line in self.output().splitlines():
            key, mark, value = line.strip(" {}").partition("': ")
            if mark and key.strip("'") == name:
                return int(value.rstrip(",}"))
        return 0


@dataclass
class Project:
    """A folder that Scrapy processes share: their embedded store, their items, their logs."""

    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)
    scrapy: str = ""
    python: str = sys.executable
    processes: list[Process] = field(default_factory=list)

    def start(self, spider: str, *, settings: dict[str, Any] | None = None, **arguments: str) -> Process:
        options = {
            "SCHEDULER": "shoal.scrapy.Scheduler",
            "ITEMS_FILE": self.folder / "kept",
            **self.settings,
            **(settings or {}),
        }
        argv = [self.python, "-m", "scrapy", "runspider", str(SPIDERS / f"{spider}.py")]
        argv += [word for name, value in options.items() for word in ("-s", f"{name}={value}")]
        argv += [word for name, value in arguments.items() for word in ("-a", f"{name}={value}")]
        return self.run(argv)

    def run(self, argv: list[str], folder: Path | None = None) -> Process:
        log = self.folder / f"log{len(self.processes)}"
        scrapy = self.scrapy or os.environ.get("OTHER_SCRAPY", "")
        paths = [scrapy, os.environ.get("PYTHONPATH", "")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SHOAL_", "REDIS_"))}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        process = Process(_start(argv, folder or self.folder, environment, log), log)
        self.processes.append(process)
        return process

    def crawl(
        self, spider: str, *, count: int = 1, settings: dict[str, Any] | None = None, **arguments: str
    ) -> list[Process]:
        """Start so many processes at once, and wait until all have closed by themselves."""
        started = [self.start(spider, settings=settings, **arguments) for _ in range(count)]
        for process in started:
            process.end()
        return started

    def items(self) -> list[dict[str, Any]]:
        path = self.folder / "kept"
        lines = path.read_bytes().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def keys(self) -> Counter[str]:
        """How often the pipeline got an item, by the item's key."""
        return Counter(item["key"] for item in self.items())

    def wait_for_items(self, count: int) -> None:
        wait_until(lambda: len(self.items()) >= count or not self.living(), f"{count} items; logs: {self._tails()}")
        assert len(self.items()) >= count, self._tails()

    def living(self) -> list[Process]:
        return [process for process in self.processes if process.popen.poll() is None]

    def _tails(self) -> str:
        return "\n".join(process.output()[-1500:] for process in self.processes[-3:])


def _start(argv: list[str], folder: Path, environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return start(*argv, cwd=folder, environ=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def needs_scrapy_redis() -> Path:
    """The folder of scrapy-redis' source, or a skip with the install line."""
    spec = importlib.util.find_spec("scrapy_redis")
    if spec is None or not spec.submodule_search_locations:
        reason = "scrapy-redis is not installed; run: pip install scrapy-redis"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return Path(spec.submodule_search_locations[0])


@contextlib.contextmanager
def project(folder: Path, *, scrapy: str = "", **settings: Any) -> Iterator[Project]:
    folder.mkdir(parents=True, exist_ok=True)
    more = {**QUIET, **settings}
    made = Project(folder, settings=more, scrapy=scrapy)
    try:
        yield made
    finally:
        for process in made.processes:
            process.kill()
