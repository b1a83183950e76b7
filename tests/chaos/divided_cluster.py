"""A cluster in which one primary can be cut off from all other nodes, while clients still reach every node.

Nodes announce the ports of a proxy and connect from addresses of their own, so the proxy knows which two nodes a
connection is between. Only the first primary has replicas, two of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.servers import Cluster, Options, Server, free_port, server, wait_until

_PRIMARIES, _REPLICAS = 3, 2


@dataclass
class Division:
    """The proxy of all nodes, in a thread of its own. `isolated` names the node that no other node reaches."""

    isolated: str = ""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _open: set[tuple[str, str, asyncio.StreamWriter]] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def isolate(self, node: str) -> None:
        self.isolated = node

        def cut() -> None:
            for source, target, writer in list(self._open):
                if self._cut(source, target):
                    writer.transport.abort()

        self.loop.call_soon_threadsafe(cut)

    def lead(self, port: int, target: str, target_port: int) -> None:
        """Pass connections to `port` on to a node."""
        serving = asyncio.start_server(partial(self._accept, target, target_port), "127.0.0.1", port)
        asyncio.run_coroutine_threadsafe(serving, self.loop).result()

    def _cut(self, source: str, target: str) -> bool:
        """Clients connect from 127.0.0.1, which is not a node."""
        return bool(self.isolated) and source != "127.0.0.1" and source != target and self.isolated in (source, target)

    async def _accept(self, target: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = writer.get_extra_info("peername")[0]
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        entry = (source, target, writer)
        self._open.add(entry)
        there: asyncio.StreamWriter | None = None
        try:
            if self._cut(source, target):
                return
            there_reader, there = await asyncio.open_connection(target, port)
            await asyncio.gather(self._copy(reader, there), self._copy(there_reader, writer))
        except OSError:
            pass
        finally:
            self._open.discard(entry)
            self._tasks.discard(task)
            for end in (writer, there):
                if end is not None:
                    end.transport.abort()

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        raise ConnectionError("one end closed")

    def close(self) -> None:
        async def end() -> None:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)


@dataclass
class DividedCluster(Cluster):
    division: Division
    proxy_ports: list[int]

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'127.0.0.1:{proxy_port}' for proxy_port in self.proxy_ports)}"

    def cut_off(self) -> None:
        """Cut the first primary off from the other nodes, and wait until one of its replicas has replaced it."""
        self.division.isolate(_address(0))
        wait_until(lambda: any(node.info("replication")["role"] == "master" for node in self.nodes[3:]), "a failover")

    def heal(self) -> None:
        self.division.isolate("")

    @property
    def successor(self) -> Server:
        return next(node for node in self.nodes[3:] if node.info("replication")["role"] == "master")


@contextlib.contextmanager
def divided_cluster(folder: Path) -> Iterator[DividedCluster]:
    division = Division()
    threading.Thread(target=division.loop.run_forever, daemon=True).start()
    with contextlib.ExitStack() as stack:
        stack.callback(division.close)
        nodes, proxy_ports = [], []
        for number in range(_PRIMARIES + _REPLICAS):
            proxy_port, bus_proxy_port, bus = free_port(), free_port(), free_port()
            options: Options = {
                "bind": f"127.0.0.1 {_address(number)}",
                "bind-source-addr": _address(number),
                "cluster-enabled": "yes",
                "cluster-node-timeout": "1000",
                "cluster-port": str(bus),
                "cluster-announce-ip": "127.0.0.1",
                "cluster-announce-port": str(proxy_port),
                "cluster-announce-bus-port": str(bus_proxy_port),
                "repl-diskless-sync-delay": "0",
                "min-replicas-to-write": "0" if number in (1, 2) else "1",
            }
            node = stack.enter_context(server(folder / f"node{number}", options=options))
            division.lead(proxy_port, _address(number), node.port)
            division.lead(bus_proxy_port, _address(number), bus)
            nodes.append(node)
            proxy_ports.append((proxy_port, bus_proxy_port))
        for number, node in enumerate(nodes[:_PRIMARIES]):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node.ask("CLUSTER", "ADDSLOTSRANGE", 16384 * number // 3, 16384 * (number + 1) // 3 - 1)
        for proxy_port, bus_proxy_port in proxy_ports[1:]:
            nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", proxy_port, bus_proxy_port)
        for node in nodes:
            wait_until(partial(_says, node, f"cluster_known_nodes:{len(nodes)}\r"), "every node knows the others")
        for node in nodes[_PRIMARIES:]:
            node.ask("CLUSTER", "REPLICATE", nodes[0].ask("CLUSTER", "MYID"))
        for node in nodes:
            wait_until(partial(_says, node, "cluster_state:ok"), "the cluster is up")
        wait_until(
            lambda: nodes[0].info("replication").get("min_slaves_good_slaves") == str(_REPLICAS),
            "the replicas are in step",
        )
        yield DividedCluster(nodes, division, [proxy_port for proxy_port, _ in proxy_ports])


def _address(number: int) -> str:
    return f"127.0.77.{number + 1}"


def _says(node: Server, text: str) -> bool:
    return text.encode() in node.ask("CLUSTER", "INFO")
