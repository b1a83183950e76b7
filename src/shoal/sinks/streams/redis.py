"""Redis and Valkey: records are appended to a list (RPUSH), or with `?stream` to a stream (XADD).

A group of messages is one command or one pipeline, on a connection that is separate from the store's. A confirmed
message is as durable as the server's configuration makes it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from shoal.brokers.redis import fault_of, server_of
from shoal.sinks.columns import Row
from shoal.sinks.reader import Cursor, ReadRequest
from shoal.sinks.retry import QUIET_SECONDS
from shoal.sinks.streams.stream import StreamMessage, StreamSink, StreamTechnology
from shoal.store.connection import Connection, ConnectionLost, ReplyError, dial, pack


class RedisSink(StreamSink[Connection]):
    async def connect(self) -> Connection:
        return await dial(server_of(self.address))

    async def _send(self, connection: Connection, messages: list[StreamMessage]) -> None:
        name, options = self.address.name, self.address.options
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

    def abandon(self, connection: Connection) -> None:
        connection.close()

    def _explained(self, error: Exception, *, connected: bool) -> Exception:
        fault = fault_of(error)
        if fault is None:
            return super()._explained(error, connected=connected)
        lost = connected and isinstance(error, ConnectionLost)
        return self._failed(fault, quiet_seconds=QUIET_SECONDS * lost)


class RedisTechnology(StreamTechnology):
    schemes = ("redis", "rediss")
    sink_class = RedisSink

    def read(self, address: str, request: ReadRequest) -> AsyncGenerator[list[tuple[Cursor, Row]], None]:
        from shoal.sinks.streams.reader import list_bodies, read, stream_bodies

        sink = RedisSink(address, on_trouble=lambda sentence: None)
        return read(sink, stream_bodies(sink) if "stream" in sink.address.options else list_bodies(sink))


TECHNOLOGY = RedisTechnology()
