"""The store: runs scripts and commands on any kind of server.

Owns the retries. A call is repeated until it succeeds or `timeout_seconds` have passed. That is safe, because every
script is idempotent: a lost reply looks the same as a lost call. Errors that a retry cannot fix are raised at once, as
Shoal's own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shoal.errors import StoreRefused, StoreUnavailable
from shoal.store.address import StoreAddress, parse_address
from shoal.store.connection import Connection, ConnectionLost, ReplyTimeout
from shoal.store.embedded import Embedded
from shoal.store.node import Node, Pacer, pause_seconds
from shoal.store.pipeline import UNDONE, Argument, Call, Pipeline, Script
from shoal.store.pubsub import Subscriber
from shoal.store.topology import ClusterTopology, Sentinels, SingleTopology, Topology, connect_checked

# How long opening may take before a warning is emitted.
_WARN_SECONDS = 1.0
# An embedded store starts with the command, and loads its data first.
_WARN_EMBEDDED_SECONDS = 5.0
# A healthy server seldom pauses for longer.
_SILENT_SECONDS = 1.0


class Store:
    """A connected store. Build it with `await Store.open(url)`; share one per process and event loop."""

    def __init__(self, address: StoreAddress | None, topology: Topology, pacer: Pacer, timeout_seconds: float) -> None:
        self.kind = address.kind if address is not None else "embedded"
        self.shown = address.shown if address is not None else ""
        self._topology = topology
        self._pacer = pacer
        self._timeout_seconds = timeout_seconds
        self._embedded: Embedded | None = None
        self._dial_listener: Callable[[], Awaitable[Connection]]
        self._closed = False

    @classmethod
    async def open(
        cls,
        url: str = "",
        *,
        folder: str | Path = ".shoal",
        server: str = "",
        maxmemory: str = "",
        timeout_seconds: float = 60.0,
        on_warning: Callable[[str], None] | None = None,
    ) -> Store:
        """Connect, check the server, and return the store; an empty `url` means the embedded store in `folder`."""
        warned: set[str] = set()

        def warn(text: str) -> None:
            if on_warning is not None and text not in warned:
                warned.add(text)
                on_warning(text)

        pacer = Pacer()
        address = parse_address(url) if url else None
        embedded: Embedded | None = None
        if address is None:
            embedded = Embedded(Path(folder), server=server, maxmemory=maxmemory)
            await embedded.join(timeout_seconds)
        reply_timeout = ReplyTimeout(timeout_seconds)
        # Sentinels have a separate timeout: they reply even while the primary is busy.
        sentinel_timeout = ReplyTimeout(timeout_seconds)
        sentinels = Sentinels(address, pacer, sentinel_timeout) if address and address.kind == "sentinel" else None
        connect = _connector(address, embedded, sentinels, warn, reply_timeout)
        if address is not None and address.kind == "cluster":
            topology: Topology = ClusterTopology(address, pacer, warn, reply_timeout)
        else:
            shown = embedded.shown if embedded is not None else str(address and address.endpoints[0])
            topology = SingleTopology(Node(shown, connect, pacer), sentinels.agreed_primary if sentinels else None)
        store = cls(address, topology, pacer, timeout_seconds)
        store._embedded = embedded
        store.shown = store.shown or (embedded.shown if embedded is not None else "")
        store._dial_listener = connect
        try:
            await store._open(warn)
        except BaseException:
            await store.close()
            raise
        return store

    async def call(self, script: Script, key: str, args: Sequence[Argument], *, replicated: bool = False) -> Any:
        """Run a script on the server that holds `key` (KEYS[1]) and return its reply.

        With `replicated`, a primary that has replicas has replicated the effects to one of them before
        this returns; otherwise StoreUnavailable is raised.
        """
        return (await self._run([Call(script, key, args)], replicated))[0]

    async def call_many(
        self, calls: Sequence[tuple[Script, str, Sequence[Argument]]], *, replicated: bool = False
    ) -> list[Any]:
        """Run many scripts, one pipeline per server, and return their replies in order.

        Every call is tried; then the first error, if any, is raised.
        """
        return await self._run([Call(*call) for call in calls], replicated)

    async def command(self, *args: Argument, key: str | None = None) -> Any:
        """Run any command, on the server of `key` or on any server. It may run twice if a reply is lost."""
        return (await self._run([Call(None, key, args)], False))[0]

    async def command_many(self, commands: Sequence[tuple[str, Sequence[Argument]]]) -> list[Any]:
        """Run many commands, each on the server of its key, one pipeline per server. As `call_many` otherwise."""
        return await self._run([Call(None, key, args) for key, args in commands], False)

    def listener(self, channel: str) -> Subscriber:
        """Return a subscriber to the messages that scripts publish on `channel`."""
        return Subscriber(channel, self._connect_listener)

    @property
    def trouble(self) -> str:
        """A server that does not respond now, and the reason; '' if all respond. Set while calls are still retried."""
        for node in self._topology.nodes():
            link = node.current
            if link is not None and link.lost is None:
                if link.silent_seconds >= _SILENT_SECONDS:
                    return f"{link.where}: no reply"
            elif link is not None or node.failures:
                reason = str(link.lost) if link is not None else node.reason
                return (self._embedded.full_disk() if self._embedded is not None else "") or reason
        return ""

    @property
    def replicas(self) -> int:
        """How many replicas the primaries had when their server information was last read."""
        return sum(link.facts.replicas for link in self._links())

    @property
    def durable(self) -> bool:
        """True if a restart of the store loses nothing, so leasing need not be held after one."""
        links = self._links()
        return bool(links) and all(link.facts.durable for link in links)

    def run_id(self, key: str) -> str:
        """The run id of the server that holds `key`, as of its last connection ("" before the first)."""
        node = self._topology.node(key)
        return node.current.facts.run_id if node is not None and node.current is not None else ""

    def server_of(self, key: str) -> str:
        """A name for the server that holds `key`: keys with the same name are called in one pipeline."""
        node = self._topology.node(key)
        return node.where if node is not None else ""

    def embedded_pid(self) -> int | None:
        """The process id of the embedded server, None for other stores."""
        if self._embedded is None:
            return None
        links = self._links()
        return links[0].facts.pid if links else None

    async def close(self) -> None:
        """Close every connection; the embedded server stops when this was its last user."""
        self._closed = True
        await self._topology.close()
        if self._embedded is not None:
            await self._embedded.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Opening

    async def _open(self, warn: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()
        started_seconds = time.time()
        reason, warned = "no connection", False
        deadline_mono = loop.time() + self._timeout_seconds
        warn_mono = loop.time() + (_WARN_SECONDS if self._embedded is None else _WARN_EMBEDDED_SECONDS)
        while True:
            try:
                async with asyncio.timeout_at(deadline_mono):
                    return await self._topology.open()
            except (ConnectionLost, TimeoutError) as error:
                reason = str(error) or next((node.reason for node in self._topology.nodes()), reason)
                if self._embedded is not None and (failure := self._embedded.fatal(started_seconds)):
                    raise StoreUnavailable(
                        f"The embedded store in {self.shown} cannot start ({failure}); see {self._embedded.log}."
                    ) from None
                if "is a replica, not the primary" in reason and self.kind == "standalone":
                    raise StoreRefused(
                        f"The store at {self.shown} is a replica; give the URL of its primary, or of its sentinels."
                    ) from None
                if loop.time() >= deadline_mono:
                    raise self._unavailable(reason) from None
                if not warned and loop.time() > warn_mono:
                    warned = True
                    warn(
                        f"The store at {self.shown} is not ready ({reason}); "
                        f"Shoal retries for {self._timeout_seconds:g} s."
                    )

    async def _connect_listener(self) -> Connection:
        await self._pacer.turn()
        if isinstance(self._topology, ClusterTopology):
            # PUBLISH reaches every node of a cluster, so any node will do.
            return await self._topology.dial_any()
        return await self._dial_listener()

    def _links(self) -> list[Connection]:
        return [node.current for node in self._topology.nodes() if node.current is not None]

    def _unavailable(self, reason: str) -> StoreUnavailable:
        if self._embedded is not None and (failure := self._embedded.failure()):
            reason = failure
        return StoreUnavailable(
            f"The store at {self.shown} did not respond for {self._timeout_seconds:g} s ({reason}); "
            "check that it runs and can be reached."
        )

    # Running

    async def _run(self, jobs: list[Call], replicated: bool) -> list[Any]:
        """Run all jobs: rounds of one pipeline per server until none is left."""
        loop = asyncio.get_running_loop()
        deadline_mono = loop.time() + self._timeout_seconds
        results: list[Any] = [UNDONE] * len(jobs)
        todo = list(range(len(jobs)))
        pipeline = Pipeline(self._topology, jobs, results, replicated)
        failures = 0
        while True:
            if self._closed:
                raise StoreUnavailable(f"The store at {self.shown} was closed by this process; open it again.")
            reason = await pipeline.play(todo, deadline_mono)
            todo = [index for index in todo if results[index] is UNDONE]
            if not todo:
                break
            if loop.time() >= deadline_mono:
                raise self._unavailable(reason or "it redirects every call")
            if reason:
                failures += 1
                await asyncio.sleep(min(pause_seconds(failures), max(0.0, deadline_mono - loop.time())))
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results


def _connector(
    address: StoreAddress | None,
    embedded: Embedded | None,
    sentinels: Sentinels | None,
    warn: Callable[[str], None],
    reply_timeout: ReplyTimeout,
) -> Callable[[], Awaitable[Connection]]:
    """Return the function that connects to the only server. The kinds of store differ in how they find it."""
    if embedded is not None:

        async def connect_embedded() -> Connection:
            return await connect_checked(await embedded.ready(), warn, reply_timeout)

        return connect_embedded
    if address is None:
        raise ValueError("neither an address nor an embedded server")
    if sentinels is not None:

        async def connect_primary() -> Connection:
            return await connect_checked(await sentinels.primary(), warn, reply_timeout)

        return connect_primary

    async def connect_standalone() -> Connection:
        return await connect_checked(address, warn, reply_timeout)

    return connect_standalone
