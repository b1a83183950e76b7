"""Which server a key lives on: one server, the primary the sentinels name, or a cluster's slots.

A topology knows nodes and nothing of scripts or retries. `refresh` is what it does when a call could not
be made: ask again where things are.
"""

from __future__ import annotations

import asyncio
import ssl
from binascii import crc_hqx
from collections.abc import Callable
from typing import Any, Protocol

from shoal.errors import StoreRefused
from shoal.store.address import Endpoint, StoreAddress
from shoal.store.connection import ANSWER_SECONDS, Connection, ConnectionLost, ReplyError, dial
from shoal.store.node import Node, Pacer
from shoal.store.reply_errors import ReplyFault, classify, translate
from shoal.store.server_info import check

SLOTS = 16384
Warn = Callable[[str], None]


class Topology(Protocol):
    async def open(self) -> None: ...
    def node(self, key: str | None) -> Node | None: ...
    def nodes(self) -> list[Node]: ...
    def moved(self, slot: int, endpoint: str, asked: Node) -> None: ...
    def at(self, endpoint: str, asked: Node) -> Node: ...
    async def refresh(self) -> None: ...
    async def close(self) -> None: ...


async def connect_checked(
    address: StoreAddress, warn: Warn, *, answer_seconds: float = ANSWER_SECONDS, replica_too: bool = False
) -> Connection:
    """A link to a primary that is safe to use. ConnectionLost: retry; StoreRefused: do not.

    With `replica_too`, a replica will do, unchecked: one of a cluster can at least say where the primaries are.
    """
    where = str(address.endpoints[0])
    try:
        link = await dial(address, answer_seconds=answer_seconds)
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or "the handshake failed"
        raise StoreRefused(
            f"The TLS connection to the store at {where} fails ({reason}); check ssl_ca_certs, the host name and "
            "that the port speaks TLS."
        ) from error
    except ReplyError as error:
        if classify(str(error)) is ReplyFault.FINAL:
            raise translate(str(error), where, "the connection") from error
        raise ConnectionLost(f"{where}: {error}") from error
    try:
        if link.facts.loading:
            raise ConnectionLost(f"{where}: the server is loading its data")
        if link.facts.role != "master":
            if replica_too:
                return link
            raise ConnectionLost(f"{where}: the server is a replica, not the primary")
        for warning in check(link.facts, where):
            warn(warning)
    except BaseException:
        link.close()
        raise
    return link


class SingleTopology:
    """All keys on one server. `connect` finds and dials it: standalone, embedded and sentinel differ there alone."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def open(self) -> None:
        await self._node.link()

    def node(self, key: str | None) -> Node:
        return self._node

    def nodes(self) -> list[Node]:
        return [self._node]

    def moved(self, slot: int, endpoint: str, asked: Node) -> None:
        raise _is_a_cluster(asked)

    def at(self, endpoint: str, asked: Node) -> Node:
        raise _is_a_cluster(asked)

    async def refresh(self) -> None:
        return None

    async def close(self) -> None:
        await self._node.close()


def _is_a_cluster(asked: Node) -> StoreRefused:
    return StoreRefused(f"The store at {asked.where} is part of a cluster; write its URL as redis+cluster://host:port.")


class Sentinels:
    """Asks the sentinels for the primary, starting with the one that replied last."""

    def __init__(self, address: StoreAddress, pacer: Pacer, answer_seconds: float) -> None:
        self._address = address
        self._order = list(address.endpoints)
        self._answer_seconds = answer_seconds
        self._pacer = pacer

    async def primary(self) -> StoreAddress:
        reasons = []
        strangers = 0
        for sentinel in tuple(self._order):
            try:
                found = await self._ask(sentinel)
            except ConnectionLost as error:
                reasons.append(str(error))
                continue
            if found is None:
                strangers += 1
                continue
            self._order.remove(sentinel)
            self._order.insert(0, sentinel)
            return self._address.at(found)
        if strangers and not reasons:
            raise StoreRefused(
                f"No sentinel of {self._address.shown} knows the service {self._address.service!r}; "
                "check the name after the slash."
            )
        raise ConnectionLost("no sentinel names the primary (" + "; ".join(reasons) + ")")

    async def _ask(self, sentinel: Endpoint) -> Endpoint | None:
        await self._pacer.turn()
        try:
            link = await dial(self._address.at(sentinel), sentinel=True, answer_seconds=self._answer_seconds)
            try:
                reply = await link.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.service)
            finally:
                link.close()
        except ReplyError as error:
            raise translate(str(error), str(sentinel), "the question for the primary") from error
        except ssl.SSLError as error:
            raise ConnectionLost(f"{sentinel}: TLS failed ({error.reason})") from error
        if not isinstance(reply, list) or len(reply) != 2:
            return None
        return Endpoint(reply[0].decode(), int(reply[1]))


class ClusterTopology:
    """A node per primary, and the map from slots to them, read again whenever a call is redirected."""

    def __init__(self, address: StoreAddress, pacer: Pacer, warn: Warn, answer_seconds: float) -> None:
        self._address = address
        self._pacer = pacer
        self._warn = warn
        self._nodes: dict[Endpoint, Node] = {}
        self._slots: list[Node | None] = [None] * SLOTS
        self._reading: asyncio.Task[None] | None = None
        self._turn = 0
        self._answer_seconds = answer_seconds

    async def open(self) -> None:
        await self.refresh()
        # Every primary is checked, not only the one that answered first.
        await asyncio.gather(*(node.link() for node in self.nodes()))

    def node(self, key: str | None) -> Node | None:
        if key is None:
            return min(self.nodes(), key=lambda node: not node.alive, default=None)
        return self._slots[slot_of(key)]

    def nodes(self) -> list[Node]:
        """The primaries that hold slots."""
        return list(dict.fromkeys(node for node in self._slots if node is not None))

    def moved(self, slot: int, endpoint: str, asked: Node) -> None:
        self._slots[slot] = self.at(endpoint, asked)

    def at(self, endpoint: str, asked: Node) -> Node:
        host, _, port = endpoint.rpartition(":")
        return self._node_at(Endpoint(host.strip("[]") or _host(asked), int(port)))

    async def refresh(self) -> None:
        """Read the map of slots, once for all who ask at the same time."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())
        await asyncio.shield(self._reading)

    async def dial_any(self) -> Connection:
        """A link of its own to any node: PUBLISH reaches all of them."""
        endpoints = sorted({*self._nodes, *self._address.endpoints}, key=lambda endpoint: not self._alive(endpoint))
        self._turn += 1
        endpoint = endpoints[0] if self._alive(endpoints[0]) else endpoints[self._turn % len(endpoints)]
        return await self._connect(self._address.at(endpoint))

    async def _connect(self, address: StoreAddress) -> Connection:
        return await connect_checked(address, self._warn, answer_seconds=self._answer_seconds, replica_too=True)

    def _alive(self, endpoint: Endpoint) -> bool:
        return endpoint in self._nodes and self._nodes[endpoint].alive

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await asyncio.gather(*(node.close() for node in self._nodes.values()))

    async def _read(self) -> None:
        try:
            seeds = [self._node_at(endpoint) for endpoint in self._address.endpoints]
            asked = sorted(dict.fromkeys([*self._nodes.values(), *seeds]), key=lambda node: not node.alive)
            reasons = []
            for node in asked:
                try:
                    link = await node.link()
                    self._take(await link.ask("CLUSTER", "SLOTS"), node)
                except ConnectionLost as error:
                    reasons.append(str(error))
                except ReplyError as error:
                    if "cluster support disabled" in str(error):
                        raise StoreRefused(
                            f"The store at {node.where} is not a cluster; write its URL as redis://host:port."
                        ) from error
                    if classify(str(error)) is ReplyFault.FINAL:
                        raise translate(str(error), node.where, "CLUSTER SLOTS") from error
                    reasons.append(f"{node.where}: {error}")
                else:
                    return
            raise ConnectionLost("no node tells the cluster's slots (" + "; ".join(reasons) + ")")
        finally:
            self._reading = None

    def _take(self, reply: list[Any], asked: Node) -> None:
        slots: list[Node | None] = [None] * SLOTS
        for first, last, primary, *_ in reply:
            host = (primary[0] or b"").decode()
            node = self._node_at(Endpoint(host if host not in ("", "?") else _host(asked), int(primary[1])))
            slots[first : last + 1] = [node] * (last - first + 1)
        self._slots = slots
        holders = set(self.nodes())
        for endpoint, node in list(self._nodes.items()):
            if node in holders:
                if node.current is not None and node.current.facts.role != "master":
                    node.current.close("it has become a primary")  # so that it is checked as one
            elif not node.alive and endpoint not in self._address.endpoints:
                del self._nodes[endpoint]

    def _node_at(self, endpoint: Endpoint) -> Node:
        node = self._nodes.get(endpoint)
        if node is None:
            address = self._address.at(endpoint)
            node = Node(str(endpoint), lambda: self._connect(address), self._pacer)
            self._nodes[endpoint] = node
        return node


def slot_of(key: str) -> int:
    """The cluster slot of a key: CRC-16/XMODEM of its hash tag, or of all of it."""
    start = key.find("{")
    if start >= 0:
        end = key.find("}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key.encode(), 0) % SLOTS


def _host(node: Node) -> str:
    return node.where.rpartition(":")[0].strip("[]")
