"""What a worker process leaves in the supervisor's folder, and what is made of it when nobody was there to see it end.

    NAME.lock    locked by the worker process alone, which inherits the open file: free as soon as it is dead
    NAME.blame   written by the worker: which visit it is parsing

A supervisor that was killed leaves these files. Whoever comes next takes the leases of dead workers back at once,
instead of waiting until they run out; by the locks it knows exactly who is dead, without any time-out.

What worker processes are given: a folder for their files, and all settings.
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


class Trace:
    """The files of one worker process."""

    def __init__(self, folder: Path, name: str, lock_fd: int) -> None:
        self.name = name
        self.blame = folder / f"{name}.blame"
        self.lock_fd = lock_fd
        self._lock = folder / f"{name}.lock"

    @classmethod
    def begin(cls, folder: Path, name: str) -> Trace:
        """Make the folder and a locked file; `lock_fd` is for the process to inherit."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Locked before it has its name: nobody finds it free and takes the worker for dead.
            fd = os.open(folder / f"{name}.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            (folder / f"{name}.new").rename(folder / f"{name}.lock")
        except OSError as error:
            why = error.strerror or str(error)
            raise StoreRefused(f"The folder {folder} cannot be written ({why}); choose another folder.") from error
        return cls(folder, name, fd)

    def hand_on(self) -> None:
        """The process has the lock; from here on it lives exactly as long as the process."""
        os.close(self.lock_fd)
        self.lock_fd = -1

    def guilty(self) -> tuple[str, int]:
        """The lease and the visit that it was parsing, '' and 0 if none."""
        return crash_marker.read(self.blame)

    def end(self) -> None:
        self.blame.unlink(missing_ok=True)
        self._lock.unlink(missing_ok=True)


def living(folder: Path) -> set[str]:
    """The names of the worker processes of this folder that are alive."""
    return {name for name, dead in _found(folder) if not dead}


async def take_back(frontier: Frontier, folder: Path) -> int:
    """Take back what workers hold that died with their supervisor; how many leases that were."""
    taken = 0
    for name in (name for name, dead in _found(folder) if dead):
        trace = Trace(folder, name, -1)
        token, number = trace.guilty()
        taken += await frontier.reap(name, token=token, number=number)
        trace.end()
    return taken


def _found(folder: Path) -> list[tuple[str, bool]]:
    """Each worker that has files here, and whether it is dead."""
    found = []
    for path in sorted(folder.glob("*.lock")):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            try:
                # Shared: two that look at the same time do not take each other for the worker.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append((path.stem, False))
            else:
                found.append((path.stem, True))
    return found


class Workplace:
    """Where the files of workers are: beside an embedded store, else in a folder that goes with us."""

    def __init__(self, settings: Settings) -> None:
        self.embedded = not settings.store.url
        self.folder = Path(settings.store.folder).absolute() / "workers"
        if not self.embedded:
            self.folder = Path(tempfile.mkdtemp(prefix="shoal-workers-"))

    def close(self) -> None:
        if not self.embedded:
            shutil.rmtree(self.folder, ignore_errors=True)


def orders(settings: Settings) -> dict[str, Any]:
    """All settings, for processes that look at no variable of their own: they may be secret, and are settled here."""
    plain = {key: getattr(getattr(settings, field.section), field.name) for key, field in FIELDS.items()}
    return {**plain, "outputs": settings.outputs}
