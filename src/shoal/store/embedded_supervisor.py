"""Keeps the embedded server of one folder running, and stops it after its last client.

Run by path, as a separate process: it imports only the standard library and starts in milliseconds. Three locked files
show which processes are alive; the kernel releases a lock however its holder ends.

    keeper.lock    held by the supervisor. A client that holds it may start one, which inherits the locked file.
    server.lock    held by the server, which inherits the locked file: two can never serve one folder,
                   and if a supervisor is killed, its successor can wait for the server.
    clients.lock   held shared by every Shoal process. The supervisor waits until it can hold it exclusively:
                   then no client is left, and none can join before the server has stopped.

Must not touch the data. The server's output goes to server.log, the reason of its last exit to server.failure.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

# A server that ran this long was healthy; after a shorter run the next start is delayed.
_HEALTHY_SECONDS = 10.0
_SLOWEST_SECONDS = 10.0
STOP_SECONDS = 20.0
_LOG_LIMIT = 1_000_000
# Warnings that every start prints; never the reason of a failure.
_USUAL = ("WARNING", "overcommit", "Transparent Huge", "oO0OoO0OoO0Oo", "version=", "User requested shutdown")


class EmbeddedSupervisor:
    def __init__(self, folder: Path, server: str, maxmemory: str, socket_path: str) -> None:
        self.folder = folder
        self.server = server
        self.maxmemory = maxmemory
        self.socket_path = Path(socket_path)
        self.stopping = threading.Event()
        self.guard = threading.Lock()  # a server is either started before stop() or not at all
        self.child: subprocess.Popen[bytes] | None = None
        self.adopted = False  # whether a server of a killed supervisor runs

    def run(self, lock_fd: int) -> None:
        os.ftruncate(lock_fd, 0)
        os.write(lock_fd, str(os.getpid()).encode())
        self.adopted = self.is_served()
        serving = threading.Thread(target=self.serve, daemon=True)
        serving.start()
        with (self.folder / "clients.lock").open("rb+") as clients:
            fcntl.flock(clients, fcntl.LOCK_EX)
            with self.guard:
                self.stopping.set()
            self.stop()
            serving.join(STOP_SECONDS)
            (self.folder / "server.failure").unlink(missing_ok=True)
            for path in {self.linked_socket(), self.socket_path}:
                self.remove_socket(path)
            (self.folder / "socket").unlink(missing_ok=True)
            # In this order: the next holder of clients.lock must find keeper.lock free.
            os.close(lock_fd)

    def serve(self) -> None:
        """Start a server whenever none holds server.lock."""
        failures = 0
        log_start, started_mono = 0, 0.0
        while True:
            # A new open file each time: the previous one's lock belongs to the server that inherited it.
            with (self.folder / "server.lock").open("rb+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self.adopted = False
                if started_mono:
                    ran_seconds = time.monotonic() - started_mono
                    failures = 1 if ran_seconds >= _HEALTHY_SECONDS else failures + 1
                    self.note_end(log_start)
                self.stopping.wait(self.pause_seconds(failures))
                log_start, started_mono = self.trim_log(), 0.0
                with self.guard:
                    if self.stopping.is_set():
                        return
                    try:
                        self.start(lock.fileno())
                        started_mono = time.monotonic()
                    except OSError as error:
                        failures += 1
                        self.note(f"{self.server} cannot be started: {os.strerror(error.errno or 0)}", killed=False)
            if started_mono:
                threading.Thread(target=self.clear_failure, args=(self.child,), daemon=True).start()

    @staticmethod
    def pause_seconds(failures: int) -> float:
        return 0.0 if failures <= 1 else min(_SLOWEST_SECONDS, 0.25 * 2.0 ** (failures - 2))

    def start(self, lock_fd: int) -> None:
        # The socket of a killed server would refuse connections. The lock is held, so no server uses it.
        self.socket_path.unlink(missing_ok=True)
        inside = self.socket_path.parent == self.folder
        if not inside:
            link = self.folder / "socket"
            if (previous := self.linked_socket()) != self.socket_path:
                self.remove_socket(previous)
            link.unlink(missing_ok=True)
            link.symlink_to(self.socket_path)
        options = {
            "port": "0",
            # Relative to the folder, so that no character of its path needs quoting.
            "unixsocket": self.socket_path.name if inside else str(self.socket_path),
            "unixsocketperm": "700",
            "dir": ".",
            "daemonize": "no",
            "appendonly": "yes",
            # Calls are batched, so this costs little, and kill -9 loses nothing.
            "appendfsync": "always",
            "save": "",
            "maxmemory": self.maxmemory,
            "maxmemory-policy": "noeviction",
        }
        argv = [self.server]
        for name, value in options.items():
            argv += [f"--{name}", value]
        with (self.folder / "server.log").open("ab") as log:
            self.child = subprocess.Popen(
                argv,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock_fd,),
                start_new_session=True,
            )
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, str(self.child.pid).encode(), 0)

    def stop(self) -> None:
        with self.guard:
            child = self.child
        if child is not None:
            child.terminate()
            threading.Timer(STOP_SECONDS / 2, child.kill).start()
            return
        if not self.adopted:
            # Nothing runs. The link of a copied folder names the socket of the original's server.
            return
        # It is not a child process, so use its socket.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(STOP_SECONDS / 2)
            connection.connect(str(self.linked_socket()))
            connection.sendall(b"SHUTDOWN\r\n")
            connection.recv(1)

    def is_served(self) -> bool:
        """Whether a server holds the lock of this folder."""
        with (self.folder / "server.lock").open("rb+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def linked_socket(self) -> Path:
        """The path where clients look for the server. A supervisor in another environment may have chosen it."""
        link = self.folder / "socket"
        return link.readlink() if link.is_symlink() else link

    def remove_socket(self, path: Path) -> None:
        """Remove a socket, and its private directory if it lies outside the folder.

        The directory's name is derived from the folder's path. The link of a copied folder names the directory of
        the original, which may have a running server.
        """
        if path.parent.name == self.socket_path.parent.name:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                if path.parent != self.folder:
                    path.parent.rmdir()

    def clear_failure(self, child: subprocess.Popen[bytes]) -> None:
        """Delete the reason of the last server's exit once this server has run for a while."""
        if not self.stopping.wait(_HEALTHY_SECONDS) and self.child is child and child.returncode is None:
            (self.folder / "server.failure").unlink(missing_ok=True)

    def trim_log(self) -> int:
        """Move a long log to server.log.old; return the offset at which the next server's log begins."""
        log = self.folder / "server.log"
        size = log.stat().st_size if log.exists() else 0
        if size > _LOG_LIMIT:
            log.replace(self.folder / "server.log.old")
            return 0
        return size

    def note_end(self, log_start: int) -> None:
        code = self.child.wait() if self.child is not None else 0
        self.child = None
        with (self.folder / "server.log").open("rb") as log:
            log.seek(log_start)
            lines = log.read().decode("utf-8", "replace").splitlines()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        reason = exit_reason(lines)
        self.note(f"the embedded server exited with {how}" + (f": {reason}" if reason else ""), killed=code < 0)

    def note(self, text: str, *, killed: bool) -> None:
        # Renamed into place: a client reads all of it or nothing. A full disk must not end the supervisor.
        with contextlib.suppress(OSError):
            new_file = self.folder / "server.failure.new"
            new_file.write_text(json.dumps({"at": time.time(), "text": text, "killed": killed}))
            new_file.replace(self.folder / "server.failure")


def exit_reason(lines: list[str]) -> str:
    """The last warning in the lines of a log, otherwise the last line without a log level."""
    relevant = [line for line in lines if line.strip() and not any(word in line for word in _USUAL)]
    warnings = [line for line in relevant if " # " in line]
    if warnings:
        return warnings[-1].partition(" # ")[2].strip()
    unmarked = [line for line in relevant if " * " not in line and " . " not in line and " - " not in line]
    return unmarked[-1].strip() if unmarked else ""


def main(argv: list[str]) -> None:
    folder, lock_fd, server, maxmemory, socket_path = argv
    # The parent exits at once, so that no process has to reap the supervisor.
    if os.fork():
        os._exit(0)
    EmbeddedSupervisor(Path(folder), server, maxmemory, socket_path).run(int(lock_fd))
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
