"""AMQP 0-9-1 (RabbitMQ): persistent messages to an exchange, each confirmed by the broker.

The exchange must exist. A broker drops a message that no queue takes without an error, so the sink asks for it to be
returned and waits until a queue is bound.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import aio_pika
from aio_pika.abc import AbstractConnection, AbstractExchange

from shoal.brokers.amqp import LOST, NO_VIRTUAL_HOST, abandon, connect, fault_of, is_abrupt_close
from shoal.sinks.retry import QUIET_SECONDS
from shoal.sinks.streams.stream import StreamMessage, StreamSink


class ExchangeChannel(NamedTuple):
    connection: AbstractConnection
    exchange: AbstractExchange


class AmqpSink(StreamSink[ExchangeChannel]):
    _was_connected = False

    async def _connect(self) -> ExchangeChannel:
        connection = await connect(self._address)
        try:
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            name = self._address.name
            exchange = await channel.get_exchange(name, ensure=True) if name else channel.default_exchange
        except BaseException:
            abandon(connection)
            raise
        self._was_connected = True
        return ExchangeChannel(connection, exchange)

    async def _send(self, connection: ExchangeChannel, messages: list[StreamMessage]) -> None:
        routing_key = self._address.options.get("routing_key", "")
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

    def _abandon(self, connection: ExchangeChannel) -> None:
        abandon(connection.connection)

    def _meaning(self, error: Exception, *, connected: bool) -> Exception:
        fault = fault_of(error)
        if fault is None:
            return super()._meaning(error, connected=connected)
        if is_abrupt_close(error) and not self._was_connected:
            fault = NO_VIRTUAL_HOST
        return self._failed(fault, quiet_seconds=QUIET_SECONDS if fault is LOST else 0.0)
