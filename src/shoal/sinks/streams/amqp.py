"""AMQP 0-9-1, as RabbitMQ speaks it: persistent messages to an exchange, each confirmed by the broker.

The exchange is somebody else's and must be there. A message that no queue takes would be lost without a word, so the
broker is asked to return it: then the sink waits until a queue is bound.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

import aio_pika
from aio_pika.abc import AbstractConnection, AbstractExchange
from aiormq import exceptions

from shoal.errors import SinkRefused
from shoal.sinks.retry import CONNECT_SECONDS, QUIET_SECONDS, TransientError, reason
from shoal.sinks.streams.stream import BrokerAddress, StreamMessage, StreamSink

_HEARTBEAT_SECONDS = 20
NO_HOST = "refuses the virtual host; check its name and the user's rights to it"
_REFUSALS: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.ProbableAuthenticationError, "refuses the login; check user and password"),
    (exceptions.AuthenticationError, "refuses the login; check user and password"),
    (exceptions.ConnectionNotAllowed, NO_HOST),
    (exceptions.ChannelAccessRefused, "refuses: access to it is not granted; let an administrator grant it"),
    (exceptions.ChannelNotFoundEntity, "does not have it; make it first"),
    (exceptions.ChannelPreconditionFailed, "has something else of this name, or takes no message that long"),
    (exceptions.IncompatibleProtocolError, "does not speak AMQP 0-9-1; check its port"),
)


class _Connection(aio_pika.Connection):
    def __del__(self) -> None:
        """Nothing. The driver's closes it, in whichever loop runs or none; whoever made it does that here."""


async def connect(address: BrokerAddress, what: str = "output") -> AbstractConnection:
    """One connection that is not made again by itself: whoever uses it knows what was confirmed."""
    # Their words go to stderr otherwise, and tell people nothing that they are not told in a sentence.
    for name in ("aio_pika", "aiormq"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    place = urlsplit(f"//{address.hosts}")
    encrypted = address.uri.startswith("amqps:")
    return await aio_pika.connect(
        host=place.hostname or "", port=place.port or (5671 if encrypted else 5672), login=address.user or "guest",
        password=address.password or "guest", virtualhost=address.place, ssl=encrypted,
        ssl_context=_tls(address, what) if encrypted else None, timeout=CONNECT_SECONDS,
        heartbeat=_HEARTBEAT_SECONDS, connection_class=_Connection,
        client_properties={"connection_name": "shoal"},
    )  # fmt: skip


def _tls(address: BrokerAddress, what: str) -> ssl.SSLContext:
    options = address.options
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs") or None)
        if options.get("ssl_certfile"):
            context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile") or None)
    except OSError as error:
        raise SinkRefused(
            f"The certificate files of the {what} {address.shown} cannot be loaded ({error.strerror or error}); check "
            "ssl_ca_certs, ssl_certfile and ssl_keyfile."
        ) from None
    return context


def meaning(error: Exception) -> tuple[str, bool] | None:
    """What an error says after the name of what it is about, and whether time heals it."""
    for one in (error, error.__cause__, error.__context__):
        if isinstance(one, ssl.SSLCertVerificationError):
            return f"has a certificate that is not trusted: {one.verify_message.rstrip('.')}", False
    for kind, sentence in _REFUSALS:
        if isinstance(error, kind):
            return sentence, False
    if isinstance(error, exceptions.PublishError):
        return "has no queue that takes its messages; bind one", True
    if isinstance(error, exceptions.DeliveryError):
        return "could not keep a message", True
    if isinstance(error, exceptions.AMQPConnectionError) and isinstance(error.__cause__, OSError):
        return f"cannot be reached ({reason(error.__cause__)})", True
    if isinstance(error, exceptions.AMQPError | exceptions.ChannelInvalidStateError | asyncio.CancelledError):
        return "lost the connection", True
    return None


class Wire(NamedTuple):
    connection: AbstractConnection
    exchange: AbstractExchange


class AmqpSink(StreamSink[Wire]):
    _met = False

    async def _connect(self) -> Wire:
        connection = await connect(self._address)
        try:
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            name = self._address.name
            exchange = await channel.get_exchange(name, ensure=True) if name else channel.default_exchange
        except BaseException:
            _drop(connection)
            raise
        self._met = True
        return Wire(connection, exchange)

    async def _send(self, connection: Wire, messages: list[StreamMessage]) -> None:
        routing_key = self._address.options.get("routing_key", "")
        sent = [
            connection.exchange.publish(
                aio_pika.Message(
                    one.body, content_type="application/json", delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                    message_id=one.id, headers=dict(one.headers), app_id="shoal",
                ), routing_key,
            )
            for one in messages
        ]  # fmt: skip
        for outcome in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome if isinstance(outcome, Exception) else ConnectionError("the connection was closed")

    async def _disconnect(self, connection: Wire) -> None:
        await connection.connection.close()

    def _abandon(self, connection: Wire) -> None:
        _drop(connection.connection)

    def _meaning(self, error: Exception, *, connected: bool) -> Exception:
        found = meaning(error)
        if found is None:
            return super()._meaning(error, connected=connected)
        sentence, heals = found
        if isinstance(error, exceptions.InvalidFrameError) and not self._met:
            # All that the driver says when the broker closes the connection instead of opening the virtual host. A
            # broker that shuts down does the same, so it is believed at the first time only.
            sentence, heals = NO_HOST, False
        quiet = QUIET_SECONDS if sentence == "lost the connection" else 0.0
        return TransientError(sentence, quiet_seconds=quiet) if heals else self._refused(sentence)


_CLOSING: set[asyncio.Task[None]] = set()


def _drop(connection: AbstractConnection) -> None:
    """Close it without waiting for a broker that may be gone."""

    async def close() -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await connection.close()
        except Exception:
            logging.getLogger("shoal").debug("a lost AMQP connection did not close", exc_info=True)

    task = asyncio.get_running_loop().create_task(close())
    _CLOSING.add(task)
    task.add_done_callback(_CLOSING.discard)
