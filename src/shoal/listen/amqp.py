"""AMQP 0-9-1, as RabbitMQ speaks it, as a source: a queue whose messages are acknowledged after they are stored.

Queues that are not there are made, durable. What is unacknowledged when a connection ends, the broker gives out again.
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
from shoal.listen.source import MOST, WAIT_SECONDS, ReceivedMessage, SourceUnavailable, dead_letter, names_of, trouble


class AmqpSource:
    def __init__(self, address: BrokerAddress) -> None:
        self.shown = address.shown
        self._address = address
        self._names = names_of(address)
        self._connection: AbstractConnection | None = None
        self._channel: aio_pika.abc.AbstractChannel | None = None
        self._arrived: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        self._made: set[str] = set()
        self._met = False

    async def open(self) -> None:
        async with _translated(self._address, met=self._met):
            # What was here came over a connection that is gone: the broker gives it out again.
            self._arrived = asyncio.Queue()
            self._connection = await connect(self._address, "source")
            self._met = True
            self._channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
            await self._channel.set_qos(prefetch_count=MOST)
            await self._make(self._address.name)
            queue = await self._channel.get_queue(self._address.name, ensure=False)
            await queue.consume(self._arrived.put)

    async def take(self) -> list[ReceivedMessage]:
        async with _translated(self._address, met=True):
            if self._connection is None or self._connection.is_closed or not self._channel or self._channel.is_closed:
                raise SourceUnavailable("lost the connection")
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    found = [await self._arrived.get()]
            except TimeoutError:
                return []
            while len(found) < MOST and not self._arrived.empty():
                found.append(self._arrived.get_nowait())
        return [
            ReceivedMessage(
                one.body, f"{self._address.name}-{one.message_id}" if one.message_id else "", one,
                one.reply_to or "", one.correlation_id,
            )
            for one in found
        ]  # fmt: skip

    async def bury(self, message: ReceivedMessage, reason: str) -> None:
        async with _translated(self._address, met=True):
            await self._make(self._names.dead)
            await self._publish(self._names.dead, message, dead_letter(message, reason), mandatory=True)

    async def answer(self, message: ReceivedMessage, place: str, answer: bytes) -> None:
        async with _translated(self._address, met=True):
            if not place:
                await self._make(self._names.reply)
            # Somebody who asked and left is no reason to wait.
            await self._publish(place or self._names.reply, message, answer, mandatory=not place)

    async def done(self, messages: Sequence[ReceivedMessage]) -> None:
        async with _translated(self._address, met=True):
            for message in messages:
                await message.token.ack()

    async def close(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CONNECT_SECONDS):
                    await connection.close()

    async def _make(self, name: str) -> None:
        """A queue of this name, whoever made it and however."""
        if name in self._made:
            return
        if self._connection is None:
            raise SourceUnavailable("lost the connection")
        # A channel of its own: the broker closes it when the queue is not there.
        try:
            async with self._connection.channel() as channel:
                await channel.declare_queue(name, passive=True)
        except exceptions.ChannelNotFoundEntity:
            async with self._connection.channel() as channel:
                await channel.declare_queue(name, durable=True)
        self._made.add(name)

    async def _publish(self, queue: str, message: ReceivedMessage, body: bytes, *, mandatory: bool) -> None:
        if self._channel is None:
            raise SourceUnavailable("lost the connection")
        letter = aio_pika.Message(
            body, content_type="application/json", delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            correlation_id=message.correlation, app_id="shoal",
        )  # fmt: skip
        await self._channel.default_exchange.publish(letter, queue, mandatory=mandatory)


@contextlib.asynccontextmanager
async def _translated(address: BrokerAddress, *, met: bool) -> AsyncIterator[None]:
    """The driver's errors as a bridge hears them."""
    try:
        yield
    except (SourceUnavailable, asyncio.CancelledError):
        raise
    except SinkRefused as error:
        raise ShoalError(str(error)) from None
    except Exception as error:
        fault = fault_of(error)
        if is_abrupt_close(error):
            fault = LOST if met else NO_VIRTUAL_HOST
        elif fault is None and isinstance(error, TimeoutError):
            fault = ConnectionFault("does not respond", transient=True)
        elif fault is None and isinstance(error, OSError):
            fault = ConnectionFault(f"cannot be reached ({describe_os_error(error)})", transient=True)
        if fault is None:
            raise
        raise trouble(address, fault) from error
