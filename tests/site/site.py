"""Starts the site's process, configures what it serves, reads its log.

    with serving(folder, hosts=3) as site:
        first, second, third = site.take(3)
        site.at(first, "/robots.txt", robots("User-agent: *\\nDisallow: /private"))
        site.at(first, "/", page("/a", f"http://{second}/"))
        ...
        assert not site.judge().impolite(0.3)

A host is an address of 127.0.0.0/8 with a port, so any number of hosts needs no DNS. A name of
127.0.0.1, such as localhost, is a separate host, recognized by the Host header.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.site.judge import Judge
from tests.site.log import Request, read
from tests.site.responses import Open, Order, Plant, Response, Responses, Shut
from tests.site.tree import Tree

ROOT = Path(__file__).resolve().parents[2]
_TRIES = 50


@dataclass
class Site:
    """A running site. `hosts` are its addresses with their port; `second_port` is a port each of them has as well."""

    log: Path
    process: subprocess.Popen[bytes]
    hosts: list[str]
    port: int
    second_port: int = 0
    taken: int = 0

    def take(self, count: int = 1) -> list[str]:
        """Hosts that no test has taken yet."""
        assert self.taken + count <= len(self.hosts), f"the site has {len(self.hosts)} hosts: create it with more"
        self.taken += count
        return self.hosts[self.taken - count : self.taken]

    def name(self, name: str = "localhost") -> str:
        """A name of 127.0.0.1, where the site listens as well."""
        return f"{name}:{self.port}"

    def beside(self, host: str) -> str:
        """The same name or address on the site's second port."""
        return f"{host.rpartition(':')[0]}:{self.second_port}"

    def at(self, host: str, path: str, *responses: Response) -> str:
        """Serve these responses from now on, one after the other, the last one forever. Returns the URL."""
        self.send(Responses(host, path, responses))
        return f"http://{host}{path}"

    def plant(self, pages: int, hosts: tuple[str, ...] | list[str], **more: int) -> Tree:
        tree = msgspec.structs.replace(Tree(pages=pages, hosts=tuple(hosts)), **more)
        self.send(Plant(tree))
        return tree

    def shut(self, host: str) -> None:
        """Refuse connections from now on."""
        self.send(Shut(host))

    def open(self, host: str) -> None:
        self.send(Open(host))

    def send(self, *orders: Order) -> None:
        """Send orders to the process. When this returns, they apply to the next request."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode(orders) + b"\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"done\n", f"the site did not take {orders}"

    def requests(self, *hosts: str) -> list[Request]:
        """All requests so far, or those to these hosts, in the order in which they came."""
        if self.process.poll() is None:
            # Once the site has replied here, the log has the end of every response that a client has received.
            self.send()
        return [request for request in read(self.log) if not hosts or request.host in hosts]

    def judge(self, *hosts: str) -> Judge:
        return Judge(self.requests(*hosts))


@contextlib.contextmanager
def serving(
    folder: Path, *, hosts: int = 1, port: int = 0, second_port: bool = False, addresses: Sequence[str] = (),
    network: Callable[[Callable[[], list[socket.socket]]], list[socket.socket]] = lambda opened: opened(),
) -> Iterator[Site]:  # fmt: skip
    """A site on so many addresses, all on one port (any free one when it is 0). Its log is `folder`/requests.

    With `addresses`, on these. `network` calls what opens the sockets, maybe in another network namespace.
    """
    folder.mkdir(parents=True, exist_ok=True)
    addresses = addresses or [f"127.0.{1 + number // 250}.{1 + number % 250}" for number in range(hosts)]
    # Names such as localhost resolve to 127.0.0.1.
    sockets = network(lambda: _listening(["127.0.0.1", *addresses], port))
    more = network(lambda: _listening(["127.0.0.1", *addresses], 0)) if second_port else []
    port, second = (group[0].getsockname()[1] if group else 0 for group in (sockets, more))
    numbers = [listening.fileno() for listening in (*sockets, *more)]
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    log = folder / "requests"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.site.server", str(log), *map(str, numbers)], pass_fds=numbers, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        for listening in (*sockets, *more):
            listening.close()
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", "the site did not start; its error is above"
        yield Site(log, process, [f"{address}:{port}" for address in addresses], port, second)
    finally:
        process.kill()
        process.communicate()


def _listening(addresses: list[str], port: int) -> list[socket.socket]:
    """One socket for each address, all on the same port."""
    for _ in range(_TRIES):
        sockets: list[socket.socket] = []
        try:
            for address in addresses:
                chosen = port or (sockets[0].getsockname()[1] if sockets else 0)
                sockets.append(socket.create_server((address, chosen), backlog=1024))
            return sockets
        except OSError as error:
            for listening in sockets:
                listening.close()
            if port or error.errno != errno.EADDRINUSE:
                raise
    raise AssertionError(f"no port was free on all of {len(addresses)} addresses in {_TRIES} tries")
