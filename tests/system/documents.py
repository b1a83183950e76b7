"""Debian's documentation as web sites: trees unpacked by tests/documents, served by a separate nginx.

Each tree is served on any number of loopback addresses, each of them a separate host to a crawler. nginx runs in the
folder it is given and writes every response to a log, which decides what was requested, when and by which client.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.servers import free_port

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shoal-docs"
_START_SECONDS = 15.0
_LOG = (
    "$server_addr\t$request_method\t$request_uri\t$status\t$bytes_sent\t$msec\t$request_time\t$sent_http_content_type"
)


class Missing(Exception):
    """Something to serve, or to serve it with, is not on this machine. The message says how to install it."""


@dataclass(frozen=True)
class Tree:
    """Documents of one package: where their root is found below the unpacked package, and which pages start them."""

    package: str
    root: str
    robots: str = ""
    start: str = "/index.html"

    @property
    def path(self) -> Path:
        paths = sorted(path for path in (CACHE / self.package).glob(self.root) if path.is_dir())
        if not paths:
            raise Missing(f"{self.package} is not unpacked in {CACHE}; run: tests/documents {self.package}")
        return paths[0]


PYTHON = Tree("python3-doc", "usr/share/doc/python3.[0-9]*/html")
POSTGRESQL = Tree("postgresql-doc", "usr/share/doc/postgresql-doc-*/html")
HANDBOOK = Tree("debian-handbook", "usr/share/doc/debian-handbook/html/en-US")


class Request(NamedTuple):
    """A line of nginx's log. Moments are seconds of the wall clock, to the millisecond as nginx logs them."""

    address: str
    method: str
    path: str
    status: int
    bytes: int
    started: float
    ended: float
    content_type: str

    @property
    def is_page(self) -> bool:
        return self.status == 200 and self.content_type.startswith("text/html")


class Web:
    """One nginx process that shows trees on addresses of 127.0.0.0/8, started and ended with the block."""

    def __init__(self, folder: Path, trees: Iterable[tuple[Tree, int]]) -> None:
        """`trees` are trees and on how many addresses each of them is."""
        self.folder = folder
        self.log = folder / "access.log"
        self.port = free_port()
        self.trees = [(tree, _addresses(place, copies)) for place, (tree, copies) in enumerate(trees)]
        self._process: subprocess.Popen[bytes] | None = None

    def sites(self, tree: Tree) -> list[str]:
        """The addresses of a tree as URLs without a path."""
        return [self.site(address) for own, addresses in self.trees if own is tree for address in addresses]

    def site(self, address: str) -> str:
        return f"http://{address}:{self.port}"

    def mark(self) -> int:
        """Where the log ends now, for `requests`."""
        return self.log.stat().st_size

    def requests(self, since: int = 0) -> Iterator[Request]:
        with self.log.open() as log:
            log.seek(since)
            for line in log:
                address, method, path, status, size, ended, took, kind = line.rstrip("\n").split("\t")
                end = float(ended)
                yield Request(address, method, path, int(status), int(size), end - float(took), end, kind)

    def __enter__(self) -> Self:
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
        if program is None:
            raise Missing("nginx is not installed; run: apt-get install nginx-light")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "nginx.conf").write_text(self._config())
        argv = [program, "-p", str(self.folder), "-c", "nginx.conf", "-e", "error.log"]
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
        last = self.trees[-1][1][-1]
        until = time.monotonic() + _START_SECONDS
        while not _listens(last, self.port):
            if self._process.poll() is not None or time.monotonic() > until:
                self.__exit__(None, None, None)
                raise RuntimeError(f"nginx did not start: {(self.folder / 'error.log').read_text()[-500:]}")
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def _config(self) -> str:
        mime = next((path for path in _MIME_TYPES if Path(path).exists()), None)
        if mime is None:
            raise Missing("nginx's mime.types is not in /etc/nginx; run: apt-get install nginx-light")
        servers = "".join(self._server(tree, addresses) for tree, addresses in self.trees)
        temporary = "".join(f"  {name}_temp_path {name};\n" for name in _TEMPORARY)
        return (
            # Without a master there is one process, under our own user, that one signal ends.
            "daemon off;\nmaster_process off;\nworker_processes 1;\npid nginx.pid;\nerror_log error.log;\n"
            "events { worker_connections 8192; }\n"
            f"http {{\n  include {mime};\n  default_type application/octet-stream;\n"
            f"  log_format plain '{_LOG}';\n  access_log access.log plain;\n{temporary}"
            "  sendfile on;\n  tcp_nopush on;\n  keepalive_timeout 65;\n  keepalive_requests 1000000;\n"
            "  open_file_cache max=100000 inactive=600s;\n  open_file_cache_valid 600s;\n"
            f"  log_not_found off;\n{servers}}}\n"
        )

    def _server(self, tree: Tree, addresses: list[str]) -> str:
        listens = "".join(f"    listen {address}:{self.port};\n" for address in addresses)
        text = tree.robots.replace("\n", "\\n")
        robots = f"    location = /robots.txt {{ default_type text/plain; return 200 '{text}'; }}\n" if text else ""
        return f"  server {{\n{listens}    root '{tree.path}';\n    index index.html;\n{robots}  }}\n"


_MIME_TYPES = ("/etc/nginx/mime.types", "/usr/local/etc/nginx/mime.types", "/opt/homebrew/etc/nginx/mime.types")
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def _addresses(place: int, copies: int) -> list[str]:
    """Addresses of one tree: on Linux all of 127.0.0.0/8 is local, and no other test uses these."""
    return [f"127.{101 + place}.{copy // 250}.{copy % 250 + 1}" for copy in range(copies)]


def _listens(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0
