"""Which server holds a key: the only server, the primary that the sentinels name, or a node of a cluster.

A topology knows nodes, but not scripts or retries. When a call could not be made, `refresh` looks up the servers again.
"""

from __future__ import annotations

import asyncio
import ssl
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Protocol

from shoal.errors import StoreError, StoreRefused
from shoal.store.address import Endpoint, StoreAddress
from shoal.store.connection import Connection, ConnectionLost, ReplyError, ReplyTimeout, dial
from shoal.store.node import Node, Pacer, retrieve_outcome
from shoal.store.reply_errors import ReplyFault, classify, translate
from shoal.store.server_info import check
from shoal.store.slot_map import SLOTS, VIEW_COMMAND_COUNT, VIEW_COMMANDS, ClusterView, merge_views, parse_view, slot_of

# However many calls fail at once, the topology is not read more often than this.
_REFRESH_SECONDS = 0.25
# The other nodes may take this much longer to respond than the first.
_GRACE_SECONDS = 0.25
Warn = Callable[[str], None]


class Topology(Protocol):
    async def open(self) -> None: ...
    def node(self, key: str | None) -> Node | None: ...
    def nodes(self) -> list[Node]: ...
    def moved(self, slot: int, endpoint: str, node: Node) -> None: ...
    def at(self, endpoint: str, node: Node) -> Node: ...
    async def refresh(self) -> None: ...
    async def close(self) -> None: ...


async def connect_checked(
    address: StoreAddress, warn: Warn, reply_timeout: ReplyTimeout, *, replica_too: bool = False
) -> Connection:
    """Connect to a primary and check that it is safe to use. Retry after ConnectionLost, but not after StoreRefused.

    With `replica_too`, a replica is accepted without a check: a replica of a cluster knows the primaries.
    """
    where = str(address.endpoints[0])
    try:
        link = await dial(address, reply_timeout)
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


class SharedTask:
    """Work that is done once for all callers that need it at the same time, and repeated only after a pause."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._ended_mono = float("-inf")

    async def run(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(retrieve_outcome)
        # A caller's timeout must not cancel the work that others wait for.
        await asyncio.shield(self._task)

    async def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(self._ended_mono + _REFRESH_SECONDS - loop.time())
            await self._work()
        finally:
            self._ended_mono = loop.time()
            self._task = None


class SingleTopology:
    """All keys on one server. Standalone, embedded and Sentinel stores differ only in how `node` finds it.

    `primary` returns the address of the current primary according to the sentinels, if there are any.
    """

    def __init__(self, node: Node, primary: Callable[[], Awaitable[StoreAddress]] | None = None) -> None:
        self._node = node
        self._primary = primary
        self._reading = SharedTask(self._read)

    async def open(self) -> None:
        await self._node.link()

    def node(self, key: str | None) -> Node:
        return self._node

    def nodes(self) -> list[Node]:
        return [self._node]

    def moved(self, slot: int, endpoint: str, node: Node) -> None:
        raise _is_a_cluster(node)

    def at(self, endpoint: str, node: Node) -> Node:
        raise _is_a_cluster(node)

    async def refresh(self) -> None:
        if self._primary is not None:
            await self._reading.run()

    async def close(self) -> None:
        await self._reading.cancel()
        await self._node.close()

    async def _read(self) -> None:
        """Close the connection to a server that the sentinels no longer name as the primary.

        The server may not know that, if it is cut off from them.
        """
        current = self._node.current
        if current is None or current.lost is not None or self._primary is None:
            return
        where = str((await self._primary()).endpoints[0])
        if where != current.where:
            current.close(f"the sentinels name {where} as the primary")


def _is_a_cluster(node: Node) -> StoreRefused:
    return StoreRefused(f"The store at {node.where} is part of a cluster; write its URL as redis+cluster://host:port.")


class Sentinels:
    """Queries the sentinels for the primary, starting with the one that replied last."""

    def __init__(self, address: StoreAddress, pacer: Pacer, reply_timeout: ReplyTimeout) -> None:
        self._address = address
        self._order = list(address.endpoints)
        self._reply_timeout = reply_timeout
        self._pacer = pacer

    async def primary(self) -> StoreAddress:
        """The primary according to the first sentinel that replies."""
        reasons = []
        without_service = 0
        for sentinel in tuple(self._order):
            try:
                endpoint = await self._query(sentinel)
            except ConnectionLost as error:
                reasons.append(str(error))
                continue
            if endpoint is None:
                without_service += 1
                continue
            self._prefer([sentinel])
            return self._address.at(endpoint)
        if without_service and not reasons:
            raise StoreRefused(
                f"No sentinel of {self._address.shown} knows the service {self._address.service!r}; "
                "check the name after the slash."
            )
        raise ConnectionLost("no sentinel names the primary (" + "; ".join(reasons) + ")")

    async def agreed_primary(self) -> StoreAddress:
        """The primary according to most sentinels: a single one may be cut off together with an old primary."""
        replies = await asyncio.gather(*(self._query(sentinel) for sentinel in self._order), return_exceptions=True)
        named = {
            sentinel: reply for sentinel, reply in zip(self._order, replies, strict=True) if isinstance(reply, Endpoint)
        }
        if not named:
            return await self.primary()
        primary = Counter(named.values()).most_common(1)[0][0]
        self._prefer([sentinel for sentinel, reply in named.items() if reply == primary])
        return self._address.at(primary)

    def _prefer(self, sentinels: list[Endpoint]) -> None:
        self._order = [*sentinels, *(other for other in self._order if other not in sentinels)]

    async def _query(self, sentinel: Endpoint) -> Endpoint | None:
        await self._pacer.turn()
        try:
            link = await dial(self._address.at(sentinel), self._reply_timeout, sentinel=True)
            try:
                reply = await link.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.service)
            finally:
                link.close()
        except ReplyError as error:
            raise translate(str(error), str(sentinel), "the query for the primary") from error
        except ssl.SSLError as error:
            raise ConnectionLost(f"{sentinel}: TLS failed ({error.reason})") from error
        if not isinstance(reply, list) or len(reply) != 2:
            return None
        return Endpoint(reply[0].decode(), int(reply[1]))


class ClusterTopology:
    """A node per primary, and the map from slots to them, read again whenever a call could not be made."""

    def __init__(self, address: StoreAddress, pacer: Pacer, warn: Warn, reply_timeout: ReplyTimeout) -> None:
        self._address = address
        self._pacer = pacer
        self._warn = warn
        self._nodes: dict[Endpoint, Node] = {}
        self._slots: list[Node | None] = [None] * SLOTS
        self._listeners: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._reading = SharedTask(self._read)
        self._turn = 0
        self._reply_timeout = reply_timeout

    async def open(self) -> None:
        await self.refresh()
        # Every primary is checked, not only the one that replied first. A primary that is down is checked when it is
        # back.
        outcomes = await asyncio.gather(*(node.link() for node in self.nodes()), return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for error in errors:
            if len(errors) == len(outcomes) or not isinstance(error, ConnectionLost):
                raise error

    def node(self, key: str | None) -> Node | None:
        if key is None:
            return min(self.nodes(), key=lambda node: not node.alive, default=None)
        return self._slots[slot_of(key)]

    def nodes(self) -> list[Node]:
        """The primaries that hold slots."""
        return list(dict.fromkeys(node for node in self._slots if node is not None))

    def moved(self, slot: int, endpoint: str, node: Node) -> None:
        self._slots[slot] = self.at(endpoint, node)

    def at(self, endpoint: str, node: Node) -> Node:
        host, _, port = endpoint.rpartition(":")
        return self._node_at(Endpoint(host.strip("[]") or _host(node), int(port)))

    async def refresh(self) -> None:
        """Read the slot map, once for all callers that need it at the same time."""
        await self._reading.run()

    async def dial_any(self) -> Connection:
        """Open a separate connection to any node: PUBLISH reaches all of them."""
        holders = [endpoint for endpoint, node in self._nodes.items() if node.alive and node in set(self.nodes())]
        self._turn += 1
        endpoints = holders or list({*self._nodes, *self._address.endpoints})
        link = await self._connect(self._address.at(endpoints[self._turn % len(endpoints)]))
        self._listeners.add(link)
        return link

    async def _connect(self, address: StoreAddress) -> Connection:
        return await connect_checked(address, self._warn, self._reply_timeout, replica_too=True)

    async def close(self) -> None:
        await self._reading.cancel()
        await asyncio.gather(*(node.close() for node in self._nodes.values()))

    async def _read(self) -> None:
        """Query all connected nodes, and then the others one after the other until a healthy node has replied."""
        seeds = [self._node_at(endpoint) for endpoint in self._address.endpoints]
        known = dict.fromkeys([*self._nodes.values(), *seeds])
        others = [node for node in known if not node.alive]
        queries = {asyncio.create_task(self._query(node)) for node in known if node.alive}
        views: list[ClusterView] = []
        errors: list[Exception] = []
        query_another = not queries
        try:
            while True:
                if query_another and others:
                    queries.add(asyncio.create_task(self._query(others.pop(0))))
                if not queries:
                    break
                enough = any(view.healthy for view in views)
                until = asyncio.ALL_COMPLETED if enough else asyncio.FIRST_COMPLETED
                done, queries = await asyncio.wait(queries, timeout=_GRACE_SECONDS, return_when=until)
                for task in done:
                    try:
                        views.append(task.result())
                    except (ConnectionLost, StoreError) as error:
                        errors.append(error)
                if enough:
                    break
                query_another = not any(view.healthy for view in views) and not (done and queries)
        finally:
            for task in queries:
                task.cancel()
            await asyncio.gather(*queries, return_exceptions=True)
        if views:
            return self._apply(views)
        for refusal in errors:
            if isinstance(refusal, StoreError):
                raise refusal
        raise ConnectionLost("no node returned the cluster's slots (" + "; ".join(map(str, errors)) + ")")

    async def _query(self, node: Node) -> ClusterView:
        link = await node.link()
        slots, nodes, info = await link.send(VIEW_COMMANDS, VIEW_COMMAND_COUNT)
        if isinstance(slots, ReplyError):
            if "cluster support disabled" in str(slots):
                raise StoreRefused(f"The store at {node.where} is not a cluster; write its URL as redis://host:port.")
            if classify(str(slots)) is ReplyFault.FINAL:
                raise translate(str(slots), node.where, "CLUSTER SLOTS")
            raise ConnectionLost(f"{node.where}: {slots}")
        return parse_view(slots, nodes, info, _host(node))

    def _apply(self, views: list[ClusterView]) -> None:
        previous = set(self.nodes())
        merged = merge_views(views)
        nodes = {endpoint: self._node_at(endpoint) for endpoint in set(merged) if endpoint is not None}
        self._slots = [None if endpoint is None else nodes[endpoint] for endpoint in merged]
        holders = set(nodes.values())
        for endpoint, node in list(self._nodes.items()):
            if node in holders:
                if node.current is not None and node.current.facts.role != "master":
                    node.current.close("it has become a primary")  # so that it is checked as one
            elif node in previous:
                # It may be cut off from the others. Calls that wait for it, e.g. because it has lost its replica, are
                # repeated at the new holder at once; a listener connected to it would receive nothing.
                for link in (node.current, *self._listeners):
                    if link is not None and link.where == node.where:
                        link.close("it no longer holds any slots")
            elif node.alive:
                continue
            elif endpoint not in self._address.endpoints:
                del self._nodes[endpoint]

    def _node_at(self, endpoint: Endpoint) -> Node:
        node = self._nodes.get(endpoint)
        if node is None:
            address = self._address.at(endpoint)
            node = Node(str(endpoint), lambda: self._connect(address), self._pacer)
            self._nodes[endpoint] = node
        return node


def _host(node: Node) -> str:
    return node.where.rpartition(":")[0].strip("[]")
