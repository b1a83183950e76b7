"""An AMQP 0-9-1 queue (RabbitMQ) as a source. Messages are acknowledged after they are stored.

Missing queues are declared as durable. When a connection closes, the broker delivers unacknowledged messages again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import aio_pika
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage
from aiormq import exceptions

from shoal.brokers.address import BrokerAddress
from shoal.brokers.amqp import LOST, NO_VIRTUAL_HOST, connect, fault_of, is_abrupt_close
from shoal.brokers.connection import CONNECT_SECONDS, ConnectionFault, describe_os_error
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


class AmqpSource:
    def __init__(self, address: BrokerAddress) -> None:
        self.shown = address.shown
        self._address = address
        self._names = queue_names(address)
        # Also queues that the broker named itself for a client: nobody else can choose such a name.
        self.reply_prefixes = reply_prefixes(address, "amq.gen-", "amq.rabbitmq.reply-to")
        self._connection: AbstractConnection | None = None
        self._channel: aio_pika.abc.AbstractChannel | None = None
        self._sending: aio_pika.abc.AbstractChannel | None = None
        self._arrived: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        self._declared: set[str] = set()
        # Whether the broker has ever accepted a connection.
        self._connected = False

    async def open(self) -> None:
        async with _translated(self._address, connected=self._connected):
            # Messages of a closed connection are delivered again.
            self._arrived = asyncio.Queue()
            self._connection = await connect(self._address, "source")
            self._connected = True
            self._channel = await self._connection.channel()
            await self._channel.set_qos(prefetch_count=BATCH_SIZE)
            await self._declare(self._address.name)
            queue = await self._channel.get_queue(self._address.name, ensure=False)
            await queue.consume(self._arrived.put)

    async def receive(self) -> list[ReceivedMessage]:
        async with _translated(self._address, connected=True):
            if self._connection is None or self._connection.is_closed or not self._channel or self._channel.is_closed:
                raise SourceUnavailable("lost the connection")
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    messages = [await self._arrived.get()]
            except TimeoutError:
                return []
            while len(messages) < BATCH_SIZE and not self._arrived.empty():
                messages.append(self._arrived.get_nowait())
        return [
            ReceivedMessage(
                message.body, f"{self._address.name}-{message.message_id}" if message.message_id else "", message,
                message.reply_to or "", message.correlation_id,
            )
            for message in messages
        ]  # fmt: skip

    async def reject(self, message: ReceivedMessage, letter: bytes) -> None:
        await self._deliver(self._names.dead_letters, message, letter)

    async def reply(self, message: ReceivedMessage, queue: str, body: bytes) -> None:
        await self._deliver(queue or self._names.replies, message, body, ours=not queue)

    async def _deliver(self, queue: str, message: ReceivedMessage, body: bytes, *, ours: bool = True) -> None:
        try:
            async with _translated(self._address, connected=True):
                if ours:
                    await self._declare(queue)
                # A sender that is gone must not hold up the others.
                await self._publish(queue, message, body, mandatory=ours)
        except ShoalError as error:
            raise to_refusal(error) from error

    async def acknowledge(self, messages: Sequence[ReceivedMessage]) -> None:
        async with _translated(self._address, connected=True):
            for message in messages:
                await message.token.ack()

    async def close(self) -> None:
        connection, self._connection, self._channel, self._sending = self._connection, None, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CONNECT_SECONDS):
                    await connection.close()

    async def _declare(self, name: str) -> None:
        """Declare a queue, unless it exists with whatever options."""
        if name in self._declared:
            return
        if self._connection is None:
            raise SourceUnavailable("lost the connection")
        # In a channel of its own, because the broker closes it when the queue does not exist.
        try:
            async with self._connection.channel() as channel:
                await channel.declare_queue(name, passive=True)
        except exceptions.ChannelNotFoundEntity:
            async with self._connection.channel() as channel:
                await channel.declare_queue(name, durable=True)
        self._declared.add(name)

    async def _publish(self, queue: str, message: ReceivedMessage, body: bytes, *, mandatory: bool) -> None:
        if self._connection is None:
            raise SourceUnavailable("lost the connection")
        # In a channel of its own: a broker that refuses a message closes the channel, and with the channel of the
        # source its unacknowledged messages would be delivered again and again.
        if self._sending is None or self._sending.is_closed:
            self._sending = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        outgoing = aio_pika.Message(
            body, content_type="application/json", delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            correlation_id=message.correlation_id, app_id="shoal",
        )  # fmt: skip
        await self._sending.default_exchange.publish(outgoing, queue, mandatory=mandatory)


@contextlib.asynccontextmanager
async def _translated(address: BrokerAddress, *, connected: bool) -> AsyncIterator[None]:
    """Translate the driver's errors into SourceUnavailable and ShoalError."""
    try:
        yield
    except (SourceUnavailable, asyncio.CancelledError):
        raise
    except SinkRefused as error:
        raise ShoalError(str(error)) from None
    except Exception as error:
        fault = fault_of(error)
        if is_abrupt_close(error):
            fault = LOST if connected else NO_VIRTUAL_HOST
        elif fault is None and isinstance(error, TimeoutError):
            fault = ConnectionFault("does not respond", transient=True)
        elif fault is None and isinstance(error, OSError):
            fault = ConnectionFault(f"cannot be reached ({describe_os_error(error)})", transient=True)
        if fault is None:
            raise
        raise to_error(address, fault) from error
