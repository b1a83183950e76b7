"""The outputs under test, each read by other means than its own sink, and a store that remembers its answers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shoal.model.record import Record
from shoal.sinks import Key


@dataclass(frozen=True)
class Output:
    """A technology: the name a user types, and how its rows are read. `keeps_refused`: a refused row may be seen."""

    name: str
    read: Callable[[Path], list[dict[str, Any]]]
    keeps_refused: bool

    def keys(self, folder: Path) -> Counter[Key]:
        return Counter((row["crawl"], row["url"]) for row in self.read(folder / self.name))


def read_sqlite(path: Path) -> list[dict[str, Any]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        rows = [dict(row) for row in connection.execute("SELECT * FROM pages")]
    for row in rows:
        row["redirects"] = json.loads(row["redirects"])
        assert row["robots_ignored"] in (0, 1)
        row["robots_ignored"] = bool(row["robots_ignored"])
    return rows


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    *lines, rest = path.read_bytes().split(b"\n")
    assert rest == b"", "the last line has an end"
    return [json.loads(line) for line in lines]


# A new technology joins the contract here.
OUTPUTS = (Output("pages.db", read_sqlite, keeps_refused=True), Output("pages.jsonl", read_jsonl, keeps_refused=False))


@dataclass
class Store:
    """Takes each key once, from whichever batch says it first, and answers to the same receipt the same."""

    taken: Counter[Key] = field(default_factory=Counter)
    answers: dict[bytes, list[Key]] = field(default_factory=dict)

    def acknowledge(self, receipt: bytes) -> list[Key]:
        if receipt not in self.answers:
            keys = keys_of(receipt)
            self.answers[receipt] = [key for key in keys if key in self.taken]
            self.taken.update(key for key in keys if key not in self.taken)
        return self.answers[receipt]

    async def replay(self, receipt: bytes) -> list[Key]:
        return self.acknowledge(receipt)


def receipt_of(name: str, records: list[Record]) -> bytes:
    return json.dumps([name, [record.key for record in records]]).encode()


def keys_of(receipt: bytes) -> list[Key]:
    return list(dict.fromkeys((crawl, url) for crawl, url in json.loads(receipt)[1]))


def page(number: int, **more: Any) -> Record:
    values: dict[str, Any] = {
        "status": 200,
        "title": f"Page {number}",
        "text": "word " * 200,
        "fetched_at": 1700000000.5,
    } | more
    return Record(crawl="crawl", url=f"https://site.example/{number}", **values)


def urls(numbers: Any) -> set[Key]:
    return {("crawl", f"https://site.example/{number}") for number in numbers}


@contextlib.contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A small file system of its own. Mounting is for root: others skip, and root in CI fails."""
    folder.mkdir()
    tried = None
    if os.geteuid() == 0 and shutil.which("mount"):
        tried = subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)], capture_output=True, text=True)
    if tried is None or tried.returncode:
        reason = f"cannot mount a tmpfs: {tried.stderr.strip() if tried else 'needs root and mount'}"
        if os.environ.get("CI") == "true" and os.geteuid() == 0:
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
