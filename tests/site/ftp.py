"""A real FTP server (pyftpdlib) on loopback, in a thread of the test, that logs every command it gets.

with serving_ftp(folder, users={"ann": "secret"}) as server:
    (folder / "a.txt").write_text("hello")
    ... f"ftp://{server.host}/a.txt" ...
    assert "RETR a.txt" in server.commands
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers import free_port


@dataclass
class FtpServer:
    """`commands` are those that were sent, without passwords, in their order; `logins` the users that were let in."""

    host: str
    commands: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)

    def url(self, path: str = "/", user: str = "") -> str:
        return f"ftp://{user + '@' if user else ''}{self.host}{path}"


@contextlib.contextmanager
def serving_ftp(
    folder: Path, *, address: str = "127.0.0.1", users: Mapping[str, str] | None = None, without: tuple[str, ...] = ()
) -> Iterator[FtpServer]:
    """The files of a folder, for anonymous and these users. `without` are commands that this server does not know."""
    from pyftpdlib.authorizers import DummyAuthorizer  # type: ignore[import-untyped]
    from pyftpdlib.handlers import FTPHandler  # type: ignore[import-untyped]
    from pyftpdlib.ioloop import IOLoop  # type: ignore[import-untyped]
    from pyftpdlib.servers import FTPServer  # type: ignore[import-untyped]

    logging.getLogger("pyftpdlib").setLevel(logging.ERROR)
    folder.mkdir(parents=True, exist_ok=True)
    authorizer = DummyAuthorizer()
    authorizer.add_anonymous(str(folder))
    for user, password in (users or {}).items():
        authorizer.add_user(user, password, str(folder))
    server = FtpServer(f"{address}:{free_port()}")

    class Handler(FTPHandler):  # type: ignore[misc]
        proto_cmds = {name: how for name, how in FTPHandler.proto_cmds.items() if name not in without}  # noqa: RUF012

        def pre_process_command(self, line: str, command: str, argument: str) -> None:
            server.commands.append(f"{command} {'***' if command == 'PASS' else argument}".strip())
            super().pre_process_command(line, command, argument)

        def on_login(self, username: str) -> None:
            server.logins.append(username)

    Handler.authorizer = authorizer
    Handler.auth_failed_timeout = 0
    loop = IOLoop()
    serving = FTPServer((address, int(server.host.rpartition(":")[2])), Handler, ioloop=loop)
    ending = threading.Event()

    def serve() -> None:
        while not ending.is_set():
            serving.serve_forever(timeout=0.02, blocking=False, handle_exit=False)

    thread = threading.Thread(target=serve, name="ftp")
    thread.start()
    try:
        yield server
    finally:
        ending.set()
        thread.join()
        serving.close_all()
