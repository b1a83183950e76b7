"""Calls to shards: the key, the time, and the meaning of each status.

Owns the store connection of a frontier, the number of shards and the fingerprint seed. Knows nothing about crawls.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from shoal.errors import InvalidInput, StoreCorrupt, StoreHeld, StoreNotReady, StoreRefused
from shoal.frontier.epochs import Epochs, mono
from shoal.frontier.keys import prefix, store_meta, tags
from shoal.frontier.scripts import SCHEMA, Status, script
from shoal.model import validation
from shoal.store import Argument, Store
from shoal.urls.fingerprint import MAX_SHARDS, host_bits, shard_of

DEFAULT_SHARDS = 16
# Used as a shard number for the store's own key, which belongs to no shard.
STORE = -1
# A shard without a reply for longer than this is unavailable: callers continue with the others.
SLOW_SECONDS = 1.0
# A shard that is being moved accepts calls again within about a second; this is the limit.
_HELD_TIMEOUT_SECONDS = 60.0
# These scripts determine the time: they are called without an expected time.
_CLOCK_SCRIPTS = frozenset(("clock", "epoch"))


async def _found_in_shards(store: Store, namespace: str, count: int) -> list[Any] | None:
    """The record of a complete frontier with `count` shards from any of them, if the store's own key is unavailable."""
    metas = [prefix(namespace, tag) + "meta" for tag in tags(count)]
    calls = [asyncio.ensure_future(store.call(script("found"), key, (0, 0, 0, ""))) for key in metas]
    try:
        done, _ = await asyncio.wait(calls, timeout=SLOW_SECONDS)
        for call in done:
            if call.exception() is None and call.result()[0] == Status.OK:
                return [*call.result()[:4], 1]
        return None
    finally:
        for call in calls:
            call.cancel()


class Shards:
    """Every shard of one namespace on one store."""

    def __init__(
        self, store: Store, namespace: str, shards: int, seed: int, clock_ms: Callable[[], int] | None
    ) -> None:
        self.store = store
        self.namespace = namespace
        self.clock_ms = clock_ms
        self.epochs = Epochs(self)
        # Called when the frontier was created again: data that was read before is invalid.
        self.on_replaced: list[Callable[[], None]] = []
        self._requests = 0
        self._request_prefix = secrets.token_hex(6)
        # The open calls: when each started, and the shards that it waits for.
        self._open: dict[object, tuple[float, frozenset[int]]] = {}
        # The shards whose last call failed.
        self._failed: set[int] = set()
        self._join(shards, seed)

    def _join(self, shards: int, seed: int) -> None:
        self.count = shards
        self.seed = seed
        self.prefixes = [prefix(self.namespace, tag) for tag in tags(shards)]
        self._meta = [*(p + "meta" for p in self.prefixes), store_meta(self.namespace)]

    @classmethod
    async def found(
        cls, store: Store, namespace: str, shards: int | None = None, clock_ms: Callable[[], int] | None = None,
        *, exact: bool = True,
    ) -> Shards:  # fmt: skip
        """Join the frontier of this namespace, or create one with this number of shards.

        With `exact`, a frontier with another number is refused; otherwise it is joined unchanged.
        """
        validation.namespace(namespace)
        if shards is not None:
            validation.whole("shards", shards, 1, MAX_SHARDS)
        lua, key = script("found"), store_meta(namespace)
        # If several processes open an empty store at once, the first decides on shards and seed.
        args = (0, shards or DEFAULT_SHARDS, secrets.randbits(53), "m")
        call = asyncio.ensure_future(store.call(lua, key, args, replicated=True))
        try:
            await asyncio.wait([call], timeout=2 * SLOW_SECONDS)
            record = None if call.done() else await _found_in_shards(store, namespace, shards or DEFAULT_SHARDS)
            reply = record or await call
        finally:
            call.cancel()
        if reply[1].decode() != SCHEMA:
            raise StoreRefused(
                f"Namespace {namespace!r} in the store has schema {reply[1].decode()}, this version of Shoal uses "
                f"{SCHEMA}: use the version that created it, or dump it there and load it here."
            )
        count, seed = int(reply[2]), int(reply[3])
        if exact and shards is not None and shards != count:
            raise StoreRefused(
                f"Namespace {namespace!r} in the store has {count} shards, not {shards}: leave the number out, "
                "or dump it and load it into a new namespace."
            )
        if not reply[4]:
            metas = [prefix(namespace, tag) + "meta" for tag in tags(count)]
            await store.call_many([(lua, m, (i, count, seed, "m")) for i, m in enumerate(metas)], replicated=True)
            await store.call(lua, key, (0, count, seed, "c"), replicated=True)
        return cls(store, namespace, count, seed, clock_ms)

    def of(self, host: str) -> int:
        return shard_of(host_bits(host), self.count)

    def home(self, crawl_id: str) -> int:
        return self.of(crawl_id)

    def _when(self, name: str, shard: int) -> str:
        """The first argument of a script: the test's time, the frontier that was joined, and the expected time."""
        now = "" if self.clock_ms is None else str(self.clock_ms())
        joined = f"{now}|{str(self.seed)[-6:]}.{self.count}"
        if self.clock_ms is not None or name in _CLOCK_SCRIPTS:
            return joined
        expected = self.epochs.expected(shard)
        return joined if expected is None else f"{joined}|{expected[0]}|{expected[1]}"

    def request(self) -> str:
        """A request number: the same when a call is repeated, and never used for another call."""
        self._requests += 1
        return f"{self._request_prefix}{self._requests:x}"

    async def command(self, command: str, key: str, *args: Argument) -> Any:
        """Run a command on one key, on the server that holds it. It may run twice when a reply is lost."""
        return await self.store.command(command, key, *args, key=key)

    async def command_all(self, command: str, key_of: Callable[[str], str], *args: Argument) -> list[Any]:
        """Run a command on a key of every shard, in one round for each server. Replies are in the order of shards."""
        names = [key_of(shard) for shard in self.prefixes]
        return await self.store.command_many([(name, (command, name, *args)) for name in names])

    async def call(
        self, name: str, shard: int, args: Sequence[Argument], *, replicated: bool = False, waits: bool = True
    ) -> list[Any]:
        """Run one script on one shard. A status that only the caller can handle is returned.

        Without `waits`, HELD is returned too: the caller has other shards to call.
        """
        lua = script(name)
        first = mono()
        with self._watch([shard]):
            while True:
                reply = await self.store.call(
                    lua, self._meta[shard], (self._when(name, shard), *args), replicated=replicated
                )
                if not waits and reply[0] == Status.HELD:
                    return reply  # type: ignore[no-any-return]
                pause = await self._judge(name, shard, reply, first)
                if pause is None:
                    return reply  # type: ignore[no-any-return]
                await asyncio.sleep(pause)

    async def call_all(
        self,
        name: str,
        args: Mapping[int, Sequence[Argument]],
        *,
        replicated: bool = False,
        within_seconds: float | None = None,
    ) -> dict[int, list[Any]]:
        """Run one script on several shards, in one round for each server.

        With `within_seconds`, shards that have not replied by then are left out of the result.
        """
        by_server: dict[str, dict[int, Sequence[Argument]]] = {}
        for shard, arg in args.items():
            by_server.setdefault(self.store.server_of(self._meta[shard]), {})[shard] = arg
        calls = [self._call_server(name, part, replicated) for part in by_server.values()]
        if within_seconds is None:
            if len(calls) == 1:
                return await calls[0]
            # Every server is tried; then the first error is raised.
            parts = await asyncio.gather(*calls, return_exceptions=True)
        else:
            tasks = [asyncio.ensure_future(call) for call in calls]
            try:
                done, _ = await asyncio.wait(tasks, timeout=within_seconds) if tasks else ((), ())
                parts = [task.exception() or task.result() for task in done]
            finally:
                for task in tasks:
                    task.cancel()
            parts = [part for part in parts if not isinstance(part, StoreNotReady)]
        replies: dict[int, list[Any]] = {}
        for part in parts:
            if isinstance(part, BaseException):
                raise part
            replies |= part
        return {shard: replies[shard] for shard in args if shard in replies}

    async def _call_server(
        self, name: str, args: Mapping[int, Sequence[Argument]], replicated: bool
    ) -> dict[int, list[Any]]:
        lua = script(name)
        first = mono()
        done: dict[int, list[Any]] = {}
        todo = dict(args)
        with self._watch(args):
            while True:
                calls = [(lua, self._meta[shard], (self._when(name, shard), *arg)) for shard, arg in todo.items()]
                replies = await self.store.call_many(calls, replicated=replicated)
                pause = 0.0
                for shard, reply in zip(list(todo), replies, strict=True):
                    wait = await self._judge(name, shard, reply, first)
                    if wait is not None:
                        pause = max(pause, wait)
                    else:
                        done[shard] = reply
                        del todo[shard]
                if not todo:
                    return done
                await asyncio.sleep(pause)

    @property
    def unavailable(self) -> set[int]:
        """The shards that have not replied for SLOW_SECONDS, or whose last call failed."""
        before = mono() - SLOW_SECONDS
        slow = (shards for started_mono, shards in self._open.values() if started_mono < before)
        return self._failed.union(*slow) - {STORE}

    @contextlib.contextmanager
    def _watch(self, shards: Iterable[int]) -> Iterator[None]:
        call, started_mono = object(), mono()
        self._open[call] = (started_mono, frozenset(shards))
        try:
            yield
        except StoreNotReady:
            self._failed.update(shards)
            raise
        except asyncio.CancelledError:
            if started_mono < mono() - SLOW_SECONDS:
                self._failed.update(shards)
            raise
        else:
            self._failed.difference_update(shards)
        finally:
            del self._open[call]

    async def _judge(self, name: str, shard: int, reply: list[Any], first_mono: float) -> float | None:
        """Seconds to wait before the call is repeated; None when the reply is final."""
        status = reply[0]
        if status == Status.OK:
            return None
        where = f"Shard {shard}" if shard != STORE else "The store's own key"
        if status in (Status.EPOCH, Status.CLOCK):
            if mono() - first_mono > _HELD_TIMEOUT_SECONDS:
                raise StoreHeld(
                    f"{where} cannot start a new epoch: its server keeps restarting, or its clock keeps changing."
                )
            await self.epochs.turn(shard)
            return 0.0
        if status == Status.INVALID:
            raise InvalidInput(f"The script {name} rejected {reply[1].decode()}: nothing was changed.")
        if status == Status.SCHEMA:
            raise StoreRefused(
                f"{where} has schema {reply[1].decode()}, this version of Shoal uses {SCHEMA}: stop one of them."
            )
        if status in (Status.REPLACED, Status.ABSENT) and await self._join_again():
            raise StoreHeld(f"The frontier {self.namespace!r} in the store was emptied and created again; retry.")
        if status == Status.REPLACED:
            return 0.1
        if status not in (Status.ABSENT, Status.HELD):
            return None
        if mono() - first_mono > _HELD_TIMEOUT_SECONDS:
            if status == Status.ABSENT and (await self._found())[0] == Status.ABSENT:
                raise StoreHeld(
                    f"The frontier {self.namespace!r} is gone from the store: load it from a dump, or start a crawl."
                )
            if status == Status.ABSENT:
                raise StoreCorrupt(
                    f"{where} of namespace {self.namespace!r} is gone from the store: load it from a dump."
                )
            raise StoreHeld(f"{where} accepts no writes while it is moved or dumped; retry when that is done.")
        return min(max(reply[1] / 1000, 0.02), 0.25) if status == Status.HELD else 0.1

    async def _found(self) -> list[Any]:
        """The record of the frontier in the store's own key."""
        reply: list[Any] = await self.store.call(script("found"), store_meta(self.namespace), (0, 0, 0, ""))
        return reply

    async def _join_again(self) -> bool:
        """Join the frontier that has replaced the one joined before, if its seed or number of shards differs."""
        reply = await self._found()
        if reply[0] != Status.OK or not reply[4] or (int(reply[2]), int(reply[3])) == (self.count, self.seed):
            return False
        self._join(int(reply[2]), int(reply[3]))
        self.epochs.readings.clear()
        for callback in self.on_replaced:
            callback()
        return True
