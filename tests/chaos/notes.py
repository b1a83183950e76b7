"""Append-only files that several processes write to: one line at a time, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from shoal.frontier import mono


class Notes:
    """One event a line: its kind, the moment, then words. The moment is of a clock all processes of a machine share."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, *words: str) -> float:
        moment = mono()
        os.write(self._file, f"{kind} {moment:.6f} {' '.join(words)}\n".encode())
        return moment


def read(path: Path) -> Iterator[list[str]]:
    if path.exists():
        for line in path.read_text().splitlines():
            yield line.split(" ")
