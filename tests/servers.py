"""Starts real store servers for tests: on loopback ports or sockets, in their own folders, stopped by pid.

Valkey comes from the bundled binary and is always there. Debian's redis-server may be absent: a test that
needs it skips and says how to install it, and fails where CI=true.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import hiredis
import pytest

from shoal.store.embedded import find_server

Options = dict[str, str]
WAIT_SECONDS = 120.0


def valkey_server() -> str:
    """The bundled valkey-server."""
    return find_server()


def redis_server() -> str:
    """Debian's redis-server, or a skip with the install line."""
    return program("redis-server", "apt-get install redis-server")


def program(name: str, install: str) -> str:
    path = shutil.which(name)
    if path is None:
        reason = f"{name} is not installed; run: {install}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


# Below the ports that systems give to outgoing connections: such a connection must not take the port of a server that
# a test starts, or stops and starts again.
_PORTS = range(10_240, 32_768)


def free_port() -> int:
    while True:
        # Not from `random`: processes of tests may have the same seed.
        port = _PORTS[secrets.randbelow(len(_PORTS))]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until(true: Callable[[], Any], what: str, seconds: float = WAIT_SECONDS) -> Any:
    """Wait for another process to get there; the last resort where it sends no signal."""
    started = time.monotonic()
    while not (outcome := true()):
        waited = time.monotonic() - started
        if waited > seconds:
            raise AssertionError(f"not within {seconds} s: {what}")
        # What takes long may be noticed later: to look takes time that it needs itself.
        time.sleep(min(0.01 + waited / 50, 0.05))
    return outcome


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


@dataclass
class Server:
    """One server process. `ask` talks to it directly, past everything under test."""

    folder: Path
    argv: list[str]
    port: int = 0
    path: str = ""
    password: str = ""
    process: subprocess.Popen[bytes] | None = None
    tls: Any = None
    peers: list[Server] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        login = f":{self.password}@" if self.password else ""
        if self.path:
            return f"unix://{login}{self.path}"
        return f"redis{'s' if self.tls else ''}://{login}127.0.0.1:{self.port}"

    @property
    def where(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *, ready: bool = True) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **self.environ},
            )  # fmt: skip
        if ready:
            wait_until(self.responds, f"{self.argv[0]} answers; its log: {(self.folder / 'log').read_text()[-500:]}")

    def responds(self) -> bool:
        try:
            return self.ask("PING") in (b"PONG",)
        except OSError:
            return False
        except hiredis.ReplyError as error:
            return "LOADING" not in str(error)

    def ask(self, *command: str | int | bytes, seconds: float = 5.0) -> Any:
        with socket.socket(socket.AF_UNIX if self.path else socket.AF_INET) as plain:
            plain.settimeout(seconds)
            plain.connect(self.path or ("127.0.0.1", self.port))
            link = self.tls.wrap_socket(plain, server_hostname="localhost") if self.tls else plain
            commands: list[tuple[Any, ...]] = [command]
            if self.password:
                commands.insert(0, ("AUTH", self.password))
            link.sendall(b"".join(hiredis.pack_command(each) for each in commands))
            reader = hiredis.Reader()
            replies: list[Any] = []
            while len(replies) < len(commands):
                data = link.recv(65536)
                if not data:
                    raise ConnectionError("closed")
                reader.feed(data)
                while (reply := reader.gets()) is not False:
                    replies.append(reply)
        if isinstance(replies[-1], hiredis.ReplyError):
            raise replies[-1]
        return replies[-1]

    def info(self, section: str) -> dict[str, str]:
        text = self.ask("INFO", section).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        self.kill()
        self.start()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, how: int) -> None:
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.thaw()
                self.process.send_signal(how)
            try:
                self.process.wait(WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def _argv(binary: str, options: Options) -> list[str]:
    argv = [binary]
    for name, value in options.items():
        argv += [f"--{name}", *([""] if value == "" else value.split(" "))]
    return argv


@contextlib.contextmanager
def server(
    folder: Path, *, binary: str = "", options: Options | None = None, unix: bool = False, ready: bool = True
) -> Iterator[Server]:
    """A standalone server; append-only with `always` unless the options say otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    port = 0 if unix else free_port()
    settings: Options = {
        "port": str(port),
        "bind": "127.0.0.1",
        "dir": ".",
        "save": "",
        "appendonly": "yes",
        "appendfsync": "always",
        **(options or {}),
    }
    # The path of a socket has at most 107 bytes, and the folder of a test may be longer.
    with tempfile.TemporaryDirectory(prefix="shoal-") if unix else contextlib.nullcontext() as short:
        path = f"{short}/socket" if unix else ""
        if unix:
            settings["unixsocket"] = path
        started = Server(
            folder,
            _argv(binary or valkey_server(), settings),
            port=port,
            path=path,
            password=settings.get("requirepass", ""),
        )
        try:
            started.start(ready=ready)
            yield started
        finally:
            started.kill()


@contextlib.contextmanager
def tls_server(folder: Path) -> Iterator[tuple[Server, Path]]:
    """Debian's redis-server speaking TLS alone, and the file of the authority that signed its certificate."""
    import trustme

    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(str(folder / "cert.pem"), append=True)
    port = free_port()
    settings = {
        "port": "0",
        "tls-port": str(port),
        "tls-cert-file": "cert.pem",
        "tls-key-file": "key.pem",
        "tls-ca-cert-file": "ca.pem",
        "tls-auth-clients": "no",
    }
    with server(folder, binary=redis_server(), options=settings, ready=False) as redis:
        import ssl

        redis.port = port
        redis.tls = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        wait_until(redis.responds, "the TLS server answers")
        yield redis, folder / "ca.pem"


@contextlib.contextmanager
def replicated(folder: Path, *, replicas: int = 1, options: Options | None = None) -> Iterator[Server]:
    """A primary with replicas (`peers`), refusing writes without one."""
    with contextlib.ExitStack() as stack:
        settings = {"min-replicas-to-write": "1", "repl-diskless-sync-delay": "0", **(options or {})}
        primary = stack.enter_context(server(folder / "primary", options=settings))
        for number in range(replicas):
            more = {**settings, "replicaof": f"127.0.0.1 {primary.port}"}
            primary.peers.append(stack.enter_context(server(folder / f"replica{number}", options=more)))
        wait_until(
            lambda: (
                primary.info("replication").get("min_slaves_good_slaves", str(replicas)) == str(replicas)
                and primary.info("replication")["connected_slaves"] == str(replicas)
                and all(peer.info("replication")["master_link_status"] == "up" for peer in primary.peers)
            ),
            "the replicas are in step",
        )
        yield primary


@dataclass
class Sentinels:
    primary: Server
    sentinels: list[Server]
    service: str = "crawl"

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(sentinel.where for sentinel in self.sentinels)}/{self.service}"

    def named(self) -> int:
        """The port of the server the first sentinel calls the primary."""
        return int(self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)[1])


@contextlib.contextmanager
def sentinel_trio(folder: Path) -> Iterator[Sentinels]:
    """A primary with two replicas, watched by three sentinels that give up on it after half a second."""
    with replicated(folder, replicas=2) as primary, contextlib.ExitStack() as stack:
        sentinels = []
        for number in range(3):
            place = folder / f"sentinel{number}"
            place.mkdir()
            port = free_port()
            (place / "sentinel.conf").write_text(
                f"port {port}\nbind 127.0.0.1\ndir .\n"
                f"sentinel monitor crawl 127.0.0.1 {primary.port} 2\n"
                "sentinel down-after-milliseconds crawl 500\nsentinel failover-timeout crawl 1000\n"
            )
            sentinel = Server(place, [valkey_server(), "sentinel.conf", "--sentinel"], port=port)
            stack.callback(sentinel.kill)
            sentinel.start()
            sentinels.append(sentinel)
        for sentinel in sentinels:
            wait_until(partial(_knows_the_others, sentinel), "the sentinels know each other")
        yield Sentinels(primary, sentinels)


@dataclass
class Cluster:
    nodes: list[Server]  # primaries first

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(node.where for node in self.nodes)}"

    def owner(self, slot: int) -> Server:
        """The primary that says it holds the slot itself. While a slot moves, there may be none for a moment."""
        owner: Server = wait_until(lambda: self._owner(slot), f"a primary holds slot {slot}")
        return owner

    def _owner(self, slot: int) -> Server | None:
        for node in self.nodes:
            if node.process is None or node.process.poll() is not None:
                continue
            for first, last, primary, *_ in node.ask("CLUSTER", "SLOTS"):
                if first <= slot <= last and primary[1] == node.port:
                    return node
        return None

    def move(self, first: int, last: int, target: Server) -> None:
        """Move slots in one step, as Valkey 9 does it, and wait until the target holds them."""
        source = self.owner(first)
        source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", first, last, "NODE", target.ask("CLUSTER", "MYID"))
        wait_until(lambda: self._owner(first) is target, f"slots {first} to {last} are moved")

    def move_keys(self, slot: int, target: Server) -> None:
        """Move a slot key by key, as `redis-cli --cluster reshard` does it."""
        source = self.owner(slot)
        self.begin_move(slot, source, target)
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 3):
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        self.end_move(slot, source, target)

    def begin_move(self, slot: int, source: Server, target: Server) -> None:
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.ask("CLUSTER", "MYID"))

    def end_move(self, slot: int, source: Server, target: Server) -> None:
        for node in (target, source, *(node for node in self.nodes if node not in (target, source))):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.ask("CLUSTER", "MYID"))


@contextlib.contextmanager
def cluster(
    folder: Path, *, primaries: int = 3, replicas: int = 0, options: Options | None = None, binary: str = ""
) -> Iterator[Cluster]:
    """A cluster (Valkey unless `binary` is another) with the slots spread evenly and `replicas` for each primary."""
    with contextlib.ExitStack() as stack:
        nodes = []
        for number in range(primaries * (1 + replicas)):
            settings = {
                "cluster-enabled": "yes",
                "cluster-port": str(free_port()),
                "cluster-node-timeout": "1000",
                "repl-diskless-sync-delay": "0",
                **({"min-replicas-to-write": "1"} if replicas else {}),
                **(options or {}),
            }
            nodes.append(stack.enter_context(server(folder / f"node{number}", binary=binary, options=settings)))
        heads = nodes[:primaries]
        for number, node in enumerate(heads):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node.ask("CLUSTER", "ADDSLOTSRANGE", 16384 * number // primaries, 16384 * (number + 1) // primaries - 1)
        for node in nodes[1:]:
            bus = node.argv[node.argv.index("--cluster-port") + 1]
            heads[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        for node in nodes:
            wait_until(
                partial(_cluster_says, node, f"cluster_known_nodes:{len(nodes)}\r"), "every node knows the others"
            )
        for number, node in enumerate(nodes[primaries:]):
            node.ask("CLUSTER", "REPLICATE", heads[number % primaries].ask("CLUSTER", "MYID"))
        for node in nodes:
            wait_until(partial(_cluster_says, node, "cluster_state:ok"), "the cluster is up")
        for node in heads if replicas else []:
            wait_until(partial(_has_good_replicas, node, replicas), "the replicas are in step")
        yield Cluster(nodes)


def _knows_the_others(sentinel: Server) -> bool:
    flat = sentinel.ask("SENTINEL", "MASTER", "crawl")
    seen = dict(zip(flat[::2], flat[1::2], strict=True))
    return (seen.get(b"num-other-sentinels"), seen.get(b"num-slaves")) == (b"2", b"2")


def _cluster_says(node: Server, text: str) -> bool:
    return text.encode() in node.ask("CLUSTER", "INFO")


def _has_good_replicas(node: Server, count: int) -> bool:
    return node.info("replication").get("min_slaves_good_slaves") == str(count)
