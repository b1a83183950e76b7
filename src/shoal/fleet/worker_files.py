"""The files of worker processes, and how the leases of dead workers are reclaimed with their help.

    NAME.lock    locked by the worker process, which inherits the open file: the lock is free as soon as it is dead
    NAME.crash   the crash marker, written by the worker: which visit it is parsing

A supervisor that was killed leaves these files behind. The next one reclaims the leases of dead workers at once instead
of waiting until they expire. The locks show exactly which workers are dead, without a timeout.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from shoal.errors import StoreRefused
from shoal.frontier import Frontier
from shoal.settings import FIELDS, Settings
from shoal.worker import crash_marker


class WorkerFiles:
    """The files of one worker process."""

    def __init__(self, folder: Path, name: str, lock_fd: int) -> None:
        self.name = name
        self.crash_path = folder / f"{name}.crash"
        self.lock_fd = lock_fd
        self._lock_path = folder / f"{name}.lock"

    @classmethod
    def create(cls, folder: Path, name: str) -> WorkerFiles:
        """Create the folder and a locked file; the process inherits `lock_fd`."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Locked before it gets its name: no other process finds it unlocked and takes the worker for dead.
            fd = os.open(folder / f"{name}.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            (folder / f"{name}.new").rename(folder / f"{name}.lock")
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreRefused(f"Cannot write to the folder {folder} ({reason}); choose another folder.") from error
        return cls(folder, name, fd)

    def hand_over(self) -> None:
        """The process has inherited the lock, which now lasts exactly as long as the process."""
        os.close(self.lock_fd)
        self.lock_fd = -1

    def crash_marker(self) -> tuple[str, int]:
        """The token of the lease and the number of the visit that was being parsed; '' and 0 if none."""
        return crash_marker.read(self.crash_path)

    def remove(self) -> None:
        self.crash_path.unlink(missing_ok=True)
        self._lock_path.unlink(missing_ok=True)


def live_workers(folder: Path) -> set[str]:
    """The names of the worker processes of this folder that are alive."""
    return {name for name, dead in _workers(folder) if not dead}


async def reclaim(frontier: Frontier, folder: Path) -> int:
    """Reclaim the leases of workers that died with their supervisor. Returns their number."""
    reclaimed = 0
    for name in (name for name, dead in _workers(folder) if dead):
        files = WorkerFiles(folder, name, -1)
        token, number = files.crash_marker()
        reclaimed += await frontier.reap(name, token=token, number=number)
        files.remove()
    return reclaimed


def _workers(folder: Path) -> list[tuple[str, bool]]:
    """Each worker that has files here, and whether it is dead."""
    workers = []
    for path in sorted(folder.glob("*.lock")):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            try:
                # Shared: two processes that look at the same time do not take each other for the worker.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                workers.append((path.stem, False))
            else:
                workers.append((path.stem, True))
    return workers


class WorkerFolder:
    """The folder of worker files: beside an embedded store, else a temporary one that `close` removes."""

    def __init__(self, settings: Settings) -> None:
        self.embedded = not settings.store.url
        self.folder = Path(settings.store.folder).absolute() / "workers"
        if not self.embedded:
            self.folder = Path(tempfile.mkdtemp(prefix="shoal-workers-"))

    def close(self) -> None:
        if not self.embedded:
            shutil.rmtree(self.folder, ignore_errors=True)


def startup_settings(settings: Settings) -> dict[str, Any]:
    """All settings as flags for worker processes, which read no file and no environment variable of their own."""
    plain = {key: getattr(getattr(settings, field.section), field.name) for key, field in FIELDS.items()}
    return {**plain, "outputs": settings.outputs}
