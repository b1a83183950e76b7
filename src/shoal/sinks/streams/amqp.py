"""AMQP 0-9-1 (RabbitMQ): persistent messages to an exchange, each confirmed by the broker.

The exchange must exist. A broker silently drops a message that no queue takes. So the sink requests that such messages
are returned, and waits until a queue is bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, NamedTuple

from shoal.errors import InvalidInput
from shoal.settings import masked
from shoal.sinks.columns import Row
from shoal.sinks.driver import lazy_import
from shoal.sinks.reader import Cursor, ReadRequest
from shoal.sinks.retry import QUIET_SECONDS
from shoal.sinks.streams.stream import StreamMessage, StreamSink, StreamTechnology

if TYPE_CHECKING:
    import aio_pika
    from aio_pika.abc import AbstractConnection, AbstractExchange

    from shoal.brokers import amqp
else:
    aio_pika, amqp = lazy_import("aio_pika"), lazy_import("shoal.brokers.amqp")


class ExchangeChannel(NamedTuple):
    connection: AbstractConnection
    exchange: AbstractExchange


class AmqpSink(StreamSink[ExchangeChannel]):
    _was_connected = False

    async def connect(self) -> ExchangeChannel:
        connection = await amqp.connect(self.address)
        try:
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            name = self.address.name
            exchange = await channel.get_exchange(name, ensure=True) if name else channel.default_exchange
        except BaseException:
            amqp.abandon(connection)
            raise
        self._was_connected = True
        return ExchangeChannel(connection, exchange)

    async def _send(self, connection: ExchangeChannel, messages: list[StreamMessage]) -> None:
        routing_key = self.address.options.get("routing_key", "")
        sent = [
            connection.exchange.publish(
                aio_pika.Message(
                    message.body, content_type="application/json", delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                    message_id=message.id, headers=dict(message.headers), app_id="shoal",
                ), routing_key,
            )
            for message in messages
        ]  # fmt: skip
        for outcome in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome if isinstance(outcome, Exception) else ConnectionError("the connection was closed")

    async def _disconnect(self, connection: ExchangeChannel) -> None:
        await connection.connection.close()

    def abandon(self, connection: ExchangeChannel) -> None:
        amqp.abandon(connection.connection)

    def _explained(self, error: Exception, *, connected: bool) -> Exception:
        fault = amqp.fault_of(error)
        if fault is None:
            return super()._explained(error, connected=connected)
        if amqp.is_abrupt_close(error) and not self._was_connected:
            fault = amqp.NO_VIRTUAL_HOST
        return self._failed(fault, quiet_seconds=QUIET_SECONDS if fault is amqp.LOST else 0.0)


class AmqpTechnology(StreamTechnology):
    schemes = ("amqp", "amqps")
    driver = "aio_pika"
    extra = "amqp"
    sink_class = AmqpSink

    def read(self, address: str, request: ReadRequest) -> AsyncGenerator[list[tuple[Cursor, Row]], None]:
        raise InvalidInput(
            f"The output {masked(address)} cannot be read back: an exchange does not store messages; name another."
        )


TECHNOLOGY = AmqpTechnology()
