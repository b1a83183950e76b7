"""Redis and Valkey as sources: a list that clients push to with LPUSH, or a stream read by a consumer group.

A list forgets what is popped. So a script (receive.lua) moves entries to the bridge's own list, `NAME-taken:BRIDGE`,
and they are removed from there when they are acknowledged. Bridges write heartbeats into the sorted set `NAME-bridges`.
A bridge without a heartbeat for five seconds is dead, and the next bridge that receives gets its entries. A stream does
the same by itself, with pending entries and claims on idle ones.
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
from shoal.listen.source import (
    BATCH_SIZE,
    WAIT_SECONDS,
    ReceivedMessage,
    SourceUnavailable,
    queue_names,
    reply_prefixes,
    to_error,
    to_refusal,
)
from shoal.store.connection import Connection, ConnectionLost, ReplyError, dial, pack

# A bridge without a heartbeat for this long is dead. If it was only slow, its messages are handled twice, which is
# harmless.
DEAD_MS = 5000
_HEARTBEAT_SECONDS = 1.0
# The stream was deleted, or restored without its group: opening the source again creates both.
_KEY_GONE = ("NOGROUP", "UNBLOCKED")
_RECEIVE = Path(__file__).with_name("receive.lua").read_text()
_HEARTBEAT = "local t = redis.call('TIME') return redis.call('ZADD', KEYS[1], t[1] * 1000, ARGV[1])"

Command = tuple[str | bytes | int | float, ...]


class _Redis:
    """The connection, and a heartbeat every second while it is open."""

    def __init__(self, address: BrokerAddress) -> None:
        self.shown = address.shown
        self._address = address
        self._name, self._names = address.name, queue_names(address)
        self.reply_prefixes = reply_prefixes(address)
        self._bridge = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._connection: Connection | None = None
        self._heartbeats: asyncio.Task[None] | None = None

    async def open(self) -> None:
        try:
            self._connection = await dial(server_of(self._address, "source"))
            await self._prepare(self._connection)
        except SinkRefused as error:
            raise ShoalError(str(error)) from None
        except Exception as error:
            raise self._meaning(error) from error
        self._heartbeats = asyncio.create_task(self._send_heartbeats())

    async def reject(self, message: ReceivedMessage, letter: bytes) -> None:
        await self._push(self._names.dead_letters, letter)

    async def reply(self, message: ReceivedMessage, queue: str, body: bytes) -> None:
        await self._push(queue or self._names.replies, body)

    async def _push(self, queue: str, body: bytes) -> None:
        try:
            await self._send(("RPUSH", queue, body))
        except ShoalError as error:
            raise to_refusal(error) from error

    async def close(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.gather(self._heartbeats, return_exceptions=True)
            self._heartbeats = None
        if self._connection is not None:
            with contextlib.suppress(Exception):
                await self._leave()
            self._connection.close()
            self._connection = None

    async def _send(self, *commands: Command) -> list[Any]:
        """The replies; an error among them is raised."""
        try:
            if self._connection is None:
                raise ConnectionLost("no connection: it is closed")
            replies = await self._connection.send(b"".join(pack(command) for command in commands), len(commands))
            for reply in replies:
                if isinstance(reply, ReplyError):
                    raise reply
        except (ConnectionLost, ReplyError) as error:
            raise self._meaning(error) from error
        return replies

    def _meaning(self, error: Exception) -> Exception:
        if isinstance(error, ReplyError) and str(error).startswith(_KEY_GONE):
            return SourceUnavailable("has lost its stream")
        fault = fault_of(error)
        return error if fault is None else to_error(self._address, fault)

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            with contextlib.suppress(Exception):  # the next `receive` raises the error
                await self._heartbeat()

    async def _prepare(self, connection: Connection) -> None: ...

    async def _heartbeat(self) -> None: ...

    async def _leave(self) -> None: ...


class RedisSource(_Redis):
    def __init__(self, address: BrokerAddress) -> None:
        super().__init__(address)
        self._bridges = f"{self._name}-bridges"

    async def receive(self) -> list[ReceivedMessage]:
        receive = ("EVAL", _RECEIVE, 2, self._name, self._bridges, self._bridge, BATCH_SIZE, DEAD_MS)
        (entries,) = await self._send(receive)
        if not entries:
            # Moving an entry from the end to the end waits for an entry and changes nothing.
            *_, entries = await self._send(("BLMOVE", self._name, self._name, "RIGHT", "RIGHT", WAIT_SECONDS), receive)
        messages = []
        for entry in reversed(entries):
            number, _, body = entry.partition(b" ")
            messages.append(ReceivedMessage(body, f"{self._name}-{number.decode()}", entry))
        return messages

    async def acknowledge(self, messages: Sequence[ReceivedMessage]) -> None:
        own = f"{self._name}-taken:{self._bridge}"
        await self._send(*(("LREM", own, -1, message.token) for message in messages))

    async def _heartbeat(self) -> None:
        await self._send(("EVAL", _HEARTBEAT, 1, self._bridges, self._bridge))

    async def _leave(self) -> None:
        # Mark this bridge dead, so that another one gets its entries at once.
        await self._send(("ZADD", self._bridges, 0, self._bridge))


class RedisStreamSource(_Redis):
    def __init__(self, address: BrokerAddress) -> None:
        super().__init__(address)
        self._group = address.options.get("group") or "shoal"
        self._held: list[bytes] = []

    async def _prepare(self, connection: Connection) -> None:
        try:
            # From the start of the stream: requests sent before the first bridge count too.
            await connection.ask("XGROUP", "CREATE", self._name, self._group, "0", "MKSTREAM")
        except ReplyError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def receive(self) -> list[ReceivedMessage]:
        read: Command = ("XREADGROUP", "GROUP", self._group, self._bridge, "COUNT", BATCH_SIZE)
        _, pending = await self._send(
            ("XAUTOCLAIM", self._name, self._group, self._bridge, DEAD_MS, "0-0", "COUNT", BATCH_SIZE, "JUSTID"),
            (*read, "STREAMS", self._name, "0"),
        )
        entries = pending[0][1] if pending else []
        if not entries:
            (new,) = await self._send((*read, "BLOCK", int(WAIT_SECONDS * 1000), "STREAMS", self._name, ">"))
            entries = new[0][1] if new else []
        # An entry that was trimmed while it was pending has no fields.
        if trimmed := [entry for entry, fields in entries if not fields]:
            await self._send(("XACK", self._name, self._group, *trimmed))
        self._held = [entry for entry, fields in entries if fields]
        return [
            ReceivedMessage(_body(fields), f"{self._name}-{entry.decode()}", entry)
            for entry, fields in entries
            if fields
        ]

    async def acknowledge(self, messages: Sequence[ReceivedMessage]) -> None:
        await self._send(("XACK", self._name, self._group, *(message.token for message in messages)))
        acknowledged = {message.token for message in messages}
        self._held = [entry for entry in self._held if entry not in acknowledged]

    async def _heartbeat(self) -> None:
        if self._held:
            await self._send(("XCLAIM", self._name, self._group, self._bridge, 0, *self._held, "JUSTID"))

    async def _leave(self) -> None:
        # Deleting a consumer drops its pending entries, so a consumer with entries stays until others claim them.
        _, pending = await self._send(("PING",), ("XPENDING", self._name, self._group, "-", "+", 1, self._bridge))
        if not pending:
            await self._send(("XGROUP", "DELCONSUMER", self._name, self._group, self._bridge))


def _body(fields: list[bytes]) -> bytes:
    """The field `json`, or the only field, or all fields as a JSON object."""
    named = dict(zip(fields[::2], fields[1::2], strict=True))
    if b"json" in named:
        return named[b"json"]
    if len(named) == 1:
        return next(iter(named.values()))
    return msgspec.json.encode(
        {name.decode(errors="replace"): value.decode(errors="replace") for name, value in named.items()}
    )
