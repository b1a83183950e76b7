"""Starts PostgreSQL and MariaDB for tests: private clusters in their own folders, on loopback ports, stopped by pid.

Both refuse to run as root: started by root, they run as the user that Debian's package made for them.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers import WAIT_SECONDS, free_port, program, wait_until

PASSWORD = "pass/w@rd"
QUOTED = "pass%2Fw%40rd"


@dataclass
class Database:
    """One server process. `sql` talks to it by its own client program, past everything under test."""

    folder: Path
    user: str
    argv: list[str]
    scheme: str
    port: int
    client: Callable[[Database, str, str], bytes]
    process: subprocess.Popen[bytes] | None = field(default=None)

    def uri(self, database: str = "shoal", *, login: str = f"shoal:{QUOTED}", port: int = 0, **query: str) -> str:
        parameters = "&".join(f"{name}={value}" for name, value in query.items())
        return f"{self.scheme}://{login}@127.0.0.1:{port or self.port}/{database}" + (
            f"?{parameters}" if parameters else ""
        )

    def sql(self, statement: str, database: str = "shoal") -> bytes:
        return self.client(self, statement, database)

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                **_as_user(self.user),
            )  # fmt: skip
        wait_until(self.responds, f"{self.argv[0]} answers; see {self.folder / 'log'}")

    def responds(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        with contextlib.suppress(subprocess.CalledProcessError):
            return self.sql("SELECT 1").strip() == b"1"
        return False

    def kill(self) -> None:
        """With its children: those of PostgreSQL serve their connections for a moment without it."""
        if self.process is not None and self.process.poll() is None:
            pid = self.process.pid
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            self.process.kill()
            self.process.wait()
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGKILL)
            wait_until(lambda: _is_free(self.port), "the port is free")

    def stop(self) -> None:
        """Shut down as an administrator does, which closes connections. SIGINT is PostgreSQL's fast shutdown."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT if self.scheme == "postgresql" else signal.SIGTERM)
        self.process.wait(WAIT_SECONDS)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _as_user(user: str) -> dict[str, Any]:
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}


@contextlib.contextmanager
def _folder(user: str) -> Iterator[Path]:
    """Not pytest's own: other users cannot enter that one."""
    folder = Path(tempfile.mkdtemp(prefix="shoal-test-"))
    if os.geteuid() == 0:
        os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def postgresql(*, durable: bool = False) -> Iterator[Database]:
    """A cluster with a database `shoal` of the superuser `shoal`. Without `durable` a power cut loses pages."""
    install = "apt-get install postgresql"
    program("psql", install)
    folders = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    initdb = shutil.which("initdb", path=os.pathsep.join(folders)) or program("initdb", install)
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    with _folder(user) as folder:
        (folder / "password").write_text(PASSWORD)
        (folder / "password").chmod(0o644)
        subprocess.run(
            [initdb, "-D", "data", "-U", "shoal", "-E", "UTF8", "--locale=C", "-A", "scram-sha-256", "--no-sync",
             "--pwfile=password"], cwd=folder, check=True, capture_output=True, **_as_user(user),
        )  # fmt: skip
        port = free_port()
        options = {
            "port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": folder, "max_connections": 40,
            "fsync": "on" if durable else "off", "log_lock_waits": "on", "deadlock_timeout": "200ms",
        }  # fmt: skip
        argv = [str(Path(initdb).with_name("postgres")), "-D", "data"]
        argv += [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        server = Database(folder, user, argv, "postgresql", port, _psql)
        try:
            server.start()
            server.sql("CREATE DATABASE shoal", "postgres")
            yield server
        finally:
            server.kill()


def _psql(server: Database, statement: str, database: str) -> bytes:
    # Until the database of the tests exists, the check uses the one that every cluster has.
    name = "postgres" if statement == "SELECT 1" else database
    argv = ["psql", "-h", "127.0.0.1", "-p", str(server.port), "-U", "shoal", "-XAtq", "-v", "ON_ERROR_STOP=1", name]
    environment = os.environ | {"PGPASSWORD": PASSWORD, "PGCLIENTENCODING": "UTF8", "PGTZ": "UTC"}
    return subprocess.run([*argv, "-c", statement], env=environment, check=True, capture_output=True).stdout


@contextlib.contextmanager
def mariadb(*options: str) -> Iterator[Database]:
    """A server with a database `shoal` and an administrator `shoal`."""
    install = "apt-get install mariadb-server"
    program("mariadb", install)
    daemon = shutil.which("mariadbd", path=os.environ["PATH"] + ":/usr/sbin") or program("mariadbd", install)
    maker = program("mariadb-install-db", install)
    user = "mysql" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    with _folder(user) as folder:
        (folder / "first.sql").write_text(
            f"CREATE USER IF NOT EXISTS shoal@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            "GRANT ALL ON *.* TO shoal@'127.0.0.1' WITH GRANT OPTION;\nCREATE DATABASE IF NOT EXISTS shoal;\n"
        )
        subprocess.run(
            [maker, "--no-defaults", f"--datadir={folder}/data", "--skip-test-db",
             f"--tmpdir={folder}", "--auth-root-authentication-method=normal"],
            env=os.environ | {"TMPDIR": str(folder)}, cwd=folder, check=True, capture_output=True, **_as_user(user),
        )  # fmt: skip
        port = free_port()
        argv = [
            daemon, "--no-defaults", f"--datadir={folder}/data", f"--tmpdir={folder}", f"--socket={folder}/socket",
            f"--port={port}", "--bind-address=127.0.0.1", f"--pid-file={folder}/pid", f"--init-file={folder}/first.sql",
            "--skip-name-resolve", "--innodb-print-all-deadlocks=ON", "--innodb-buffer-pool-size=64M",
            *options,
        ]  # fmt: skip
        server = Database(folder, user, argv, "mysql", port, _mariadb)
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _mariadb(server: Database, statement: str, database: str) -> bytes:
    argv = ["mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", str(server.port), "-u", "shoal", f"-p{PASSWORD}"]
    argv += ["--default-character-set=utf8mb4", "--max-allowed-packet=64M", "-NBr", database, "-e", statement]
    return subprocess.run(argv, check=True, capture_output=True).stdout
