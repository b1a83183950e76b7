"""Real web servers and proxies for tests: nginx and tinyproxy from Debian, in their own folders, stopped by pid."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import free_port, program, wait_until

_SBIN = "/usr/sbin"


def _program(name: str, install: str) -> str:
    """nginx lives where only administrators have their PATH."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SBIN}") or program(name, install)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _running(argv: list[str], folder: Path, port: int) -> Iterator[None]:
    with (folder / "output").open("ab") as output:
        process = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        wait_until(lambda: process.poll() is not None or listens(port), f"{argv[0]} listens")
        if process.poll() is not None:
            pytest.fail(f"{argv[0]} ended: {(folder / 'output').read_text()[-500:]}")
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            # tinyproxy does not always notice the signal.
            process.kill()
            process.wait()


@contextlib.contextmanager
def nginx(folder: Path, server: str) -> Iterator[int]:
    """nginx with one server block, in which PORT is the port; `seen.log` has connection, protocol and path."""
    binary, port = _program("nginx", "apt-get install nginx-light"), free_port()
    (folder / "site").mkdir(parents=True)
    temporary = "".join(f"{name}_temp_path tmp;" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    # Started by root, nginx would read the folder as a user who may not.
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user} daemon off; worker_processes 1; pid pid; error_log error.log; events {{ worker_connections 1024; }}\n"
        f"http {{ {temporary} log_format seen '$connection $server_protocol $request_uri'; access_log seen.log seen;\n"
        f"server {{ {server.replace('PORT', str(port))} root site; }} }}\n"
    )
    argv = [binary, "-p", str(folder), "-c", "nginx.conf", "-e", "error.log"]
    with _running(argv, folder, port):
        yield port


@contextlib.contextmanager
def tinyproxy(folder: Path, *, connect_port: int = 443, port: int = 0) -> Iterator[int]:
    """A forward proxy that tunnels to one port; `folder/log` has its requests."""
    binary, port = _program("tinyproxy", "apt-get install tinyproxy"), port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "conf").write_text(
        f'Port {port}\nListen 127.0.0.1\nTimeout 30\nMaxClients 20\nLogFile "{folder / "log"}"\nLogLevel Info\n'
        f"Allow 127.0.0.1\nConnectPort {connect_port}\n"
    )
    with _running([binary, "-d", "-c", str(folder / "conf")], folder, port):
        yield port
