"""Redis and Valkey as sources: a list that anybody pushes to with LPUSH, or a stream read by a consumer group.

A list forgets what is popped, so a script (take.lua) moves entries to a list of the bridge's own, `NAME-taken:BRIDGE`,
from which they are removed when they are done. Bridges tell that they live in the sorted set `NAME-bridges`; whoever
is silent for five seconds is dead, and what it held goes to the next bridge that takes. A stream has all that itself:
pending entries, and claims on those that were idle for as long.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from shoal.brokers.address import BrokerAddress
from shoal.brokers.redis import fault_of, server_of
from shoal.errors import ShoalError, SinkRefused
from shoal.listen.source import MOST, WAIT_SECONDS, ReceivedMessage, dead_letter, names_of, trouble
from shoal.store.connection import Connection, ConnectionLost, ReplyError, dial, pack

# A bridge that is silent for so long is dead. One that only slept has its messages handled twice, which is no harm.
DEAD_MS = 5000
_BEAT_SECONDS = 1.0
_TAKE = Path(__file__).with_name("take.lua").read_text()
_BEAT = "local t = redis.call('TIME') return redis.call('ZADD', KEYS[1], t[1] * 1000, ARGV[1])"

Command = tuple[str | bytes | int | float, ...]


class _Redis:
    """The connection, and a sign of life a second while messages are in hand."""

    def __init__(self, address: BrokerAddress) -> None:
        self.shown = address.shown
        self._address = address
        self._name, self._names = address.name, names_of(address)
        self._me = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._link: Connection | None = None
        self._beating: asyncio.Task[None] | None = None

    async def open(self) -> None:
        try:
            self._link = await dial(server_of(self._address, "source"))
            await self._prepare(self._link)
        except SinkRefused as error:
            raise ShoalError(str(error)) from None
        except Exception as error:
            raise self._meaning(error) from error
        self._beating = asyncio.create_task(self._beat())

    async def bury(self, message: ReceivedMessage, reason: str) -> None:
        await self._ask(("RPUSH", self._names.dead, dead_letter(message, reason)))

    async def answer(self, message: ReceivedMessage, place: str, answer: bytes) -> None:
        await self._ask(("RPUSH", place or self._names.reply, answer))

    async def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
            self._beating = None
        if self._link is not None:
            with contextlib.suppress(Exception):
                await self._leave()
            self._link.close()
            self._link = None

    async def _ask(self, *commands: Command) -> list[Any]:
        """The replies; an error among them is raised."""
        try:
            if self._link is None:
                raise ConnectionLost("no connection: it was closed here")
            replies = await self._link.send(b"".join(pack(command) for command in commands), len(commands))
            for reply in replies:
                if isinstance(reply, ReplyError):
                    raise reply
        except (ConnectionLost, ReplyError) as error:
            raise self._meaning(error) from error
        return replies

    def _meaning(self, error: Exception) -> Exception:
        fault = fault_of(error)
        return error if fault is None else trouble(self._address, fault)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            with contextlib.suppress(Exception):  # whoever takes next says what is wrong
                await self._alive()

    async def _prepare(self, link: Connection) -> None: ...

    async def _alive(self) -> None: ...

    async def _leave(self) -> None: ...


class RedisSource(_Redis):
    def __init__(self, address: BrokerAddress) -> None:
        super().__init__(address)
        self._bridges = f"{self._name}-bridges"

    async def take(self) -> list[ReceivedMessage]:
        take = ("EVAL", _TAKE, 2, self._name, self._bridges, self._me, MOST, DEAD_MS)
        (entries,) = await self._ask(take)
        if not entries:
            # Moved from the end to the end: it waits until there is something, and changes nothing.
            *_, entries = await self._ask(("BLMOVE", self._name, self._name, "RIGHT", "RIGHT", WAIT_SECONDS), take)
        messages = []
        for entry in reversed(entries):
            number, _, body = entry.partition(b" ")
            messages.append(ReceivedMessage(body, f"{self._name}-{number.decode()}", entry))
        return messages

    async def done(self, messages: Sequence[ReceivedMessage]) -> None:
        mine = f"{self._name}-taken:{self._me}"
        await self._ask(*(("LREM", mine, -1, message.token) for message in messages))

    async def _alive(self) -> None:
        await self._ask(("EVAL", _BEAT, 1, self._bridges, self._me))

    async def _leave(self) -> None:
        # Dead at once, so that what it held need not wait.
        await self._ask(("ZADD", self._bridges, 0, self._me))


class RedisStreamSource(_Redis):
    def __init__(self, address: BrokerAddress) -> None:
        super().__init__(address)
        self._group = address.options.get("group") or "shoal"
        self._held: list[bytes] = []

    async def _prepare(self, link: Connection) -> None:
        try:
            # From the beginning: requests that came before the first bridge count too.
            await link.ask("XGROUP", "CREATE", self._name, self._group, "0", "MKSTREAM")
        except ReplyError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def take(self) -> list[ReceivedMessage]:
        read: Command = ("XREADGROUP", "GROUP", self._group, self._me, "COUNT", MOST)
        _, pending = await self._ask(
            ("XAUTOCLAIM", self._name, self._group, self._me, DEAD_MS, "0-0", "COUNT", MOST, "JUSTID"),
            (*read, "STREAMS", self._name, "0"),
        )
        entries = pending[0][1] if pending else []
        if not entries:
            (new,) = await self._ask((*read, "BLOCK", int(WAIT_SECONDS * 1000), "STREAMS", self._name, ">"))
            entries = new[0][1] if new else []
        # An entry that was trimmed away while it was pending has no fields any more.
        if gone := [entry for entry, fields in entries if not fields]:
            await self._ask(("XACK", self._name, self._group, *gone))
        self._held = [entry for entry, fields in entries if fields]
        return [
            ReceivedMessage(_body(fields), f"{self._name}-{entry.decode()}", entry)
            for entry, fields in entries
            if fields
        ]

    async def done(self, messages: Sequence[ReceivedMessage]) -> None:
        await self._ask(("XACK", self._name, self._group, *(message.token for message in messages)))
        done = {message.token for message in messages}
        self._held = [entry for entry in self._held if entry not in done]

    async def _alive(self) -> None:
        if self._held:
            await self._ask(("XCLAIM", self._name, self._group, self._me, 0, *self._held, "JUSTID"))

    async def _leave(self) -> None:
        # What a consumer holds is lost to the group when the consumer is deleted: then others have to claim it first.
        _, pending = await self._ask(("PING",), ("XPENDING", self._name, self._group, "-", "+", 1, self._me))
        if not pending:
            await self._ask(("XGROUP", "DELCONSUMER", self._name, self._group, self._me))


def _body(fields: list[bytes]) -> bytes:
    """The field `json`, or the only one, or all of them as an object."""
    named = dict(zip(fields[::2], fields[1::2], strict=True))
    if b"json" in named:
        return named[b"json"]
    if len(named) == 1:
        return next(iter(named.values()))
    return msgspec.json.encode(
        {name.decode(errors="replace"): value.decode(errors="replace") for name, value in named.items()}
    )
