"""A disk that is soon full: a small file system in memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "shoal-test", str(folder)],
        capture_output=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        reason = f"a small tmpfs needs root: {mounted.stderr.decode().strip()}"
        if os.environ.get("CI") == "true" and os.geteuid() == 0:
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield folder
    finally:
        # Lazily: a process that still has a file open there ends soon.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Not a byte is free until this is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (65536, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    try:
        yield
    finally:
        ballast.unlink()
