"""Redis and Valkey: records appended to a list (RPUSH), or with `?stream` to a stream (XADD).

A group of messages is one command or one pipeline on a connection of its own, apart from the store's. What the server
has answered for is as durable as the server is set up to be.
"""

from __future__ import annotations

from shoal.brokers.redis import fault_of, server_of
from shoal.sinks.retry import QUIET_SECONDS
from shoal.sinks.streams.stream import StreamMessage, StreamSink
from shoal.store.connection import Connection, ConnectionLost, ReplyError, dial, pack


class RedisSink(StreamSink[Connection]):
    async def _connect(self) -> Connection:
        return await dial(server_of(self._address))

    async def _send(self, connection: Connection, messages: list[StreamMessage]) -> None:
        name, options = self._address.name, self._address.options
        if "stream" in options:
            trim = ("MAXLEN", "~", options["maxlen"]) if "maxlen" in options else ()
            commands = [
                pack(("XADD", name, *trim, "*", "key", message.key, "json", message.body)) for message in messages
            ]
        else:
            commands = [pack(("RPUSH", name, *(message.body for message in messages)))]
        for reply in await connection.send(b"".join(commands), len(commands)):
            if isinstance(reply, ReplyError):
                raise reply

    async def _disconnect(self, connection: Connection) -> None:
        connection.close()

    def _abandon(self, connection: Connection) -> None:
        connection.close()

    def _meaning(self, error: Exception, *, connected: bool) -> Exception:
        fault = fault_of(error)
        if fault is None:
            return super()._meaning(error, connected=connected)
        lost = connected and isinstance(error, ConnectionLost)
        return self._failed(fault, quiet_seconds=QUIET_SECONDS * lost)
