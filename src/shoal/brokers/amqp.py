"""AMQP 0-9-1 (RabbitMQ): one connection that does not reconnect by itself, and what its errors mean."""

from __future__ import annotations

import asyncio
import logging
import ssl
from urllib.parse import urlsplit

import aio_pika
from aio_pika.abc import AbstractConnection
from aiormq import exceptions

from shoal.brokers.address import BrokerAddress
from shoal.brokers.connection import CONNECT_SECONDS, ConnectionFault, describe_os_error
from shoal.errors import SinkRefused

_HEARTBEAT_SECONDS = 20
LOST = ConnectionFault("lost the connection", transient=True)
NO_VIRTUAL_HOST = ConnectionFault(
    "refused the virtual host; check its name and the user's permissions", transient=False
)
_LOGIN = "refused the login; check user and password"
_REFUSALS: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.ProbableAuthenticationError, _LOGIN),
    (exceptions.AuthenticationError, _LOGIN),
    (exceptions.ConnectionNotAllowed, NO_VIRTUAL_HOST.sentence),
    (exceptions.ChannelAccessRefused, "refused access; ask an administrator to grant it"),
    (exceptions.ChannelNotFoundEntity, "does not exist; create it first"),
    (exceptions.ChannelPreconditionFailed, "exists with other properties, or the message is too long for the broker"),
    (exceptions.IncompatibleProtocolError, "does not speak AMQP 0-9-1; check its port"),
)


class _Connection(aio_pika.Connection):
    def __del__(self) -> None:
        """Do nothing: the driver would close the connection in whichever event loop runs. Our callers close it."""


async def connect(address: BrokerAddress, what: str = "output") -> AbstractConnection:
    """Connect once. The connection does not reconnect: its user knows which messages were confirmed."""
    # The drivers log to stderr otherwise; our own messages report the same errors.
    for name in ("aio_pika", "aiormq"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    server = urlsplit(f"//{address.hosts}")
    encrypted = address.uri.startswith("amqps:")
    return await aio_pika.connect(
        host=server.hostname or "", port=server.port or (5671 if encrypted else 5672), login=address.user or "guest",
        password=address.password or "guest", virtualhost=address.namespace, ssl=encrypted,
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


def fault_of(error: Exception) -> ConnectionFault | None:
    """An error of the driver in words; None for an error that is not the broker's."""
    for cause in (error, error.__cause__, error.__context__):
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = cause.verify_message.rstrip(".")
            return ConnectionFault(f"has a certificate that is not trusted: {reason}", transient=False)
    for kind, sentence in _REFUSALS:
        if isinstance(error, kind):
            return ConnectionFault(sentence, transient=False)
    if isinstance(error, exceptions.PublishError):
        return ConnectionFault("has no queue that takes its messages; bind one", transient=True)
    if isinstance(error, exceptions.DeliveryError):
        return ConnectionFault("could not store a message", transient=True)
    if isinstance(error, exceptions.AMQPConnectionError) and isinstance(error.__cause__, OSError):
        return ConnectionFault(f"cannot be reached ({describe_os_error(error.__cause__)})", transient=True)
    if isinstance(error, exceptions.AMQPError | exceptions.ChannelInvalidStateError | asyncio.CancelledError):
        return LOST
    return None


def is_abrupt_close(error: Exception) -> bool:
    """Whether the broker closed the connection without a reason.

    It does so instead of opening a virtual host that does not exist, and also when it shuts down. So only a first
    connection that ends like this means that the virtual host is wrong.
    """
    return isinstance(error, exceptions.InvalidFrameError)


_CLOSING: set[asyncio.Task[None]] = set()


def abandon(connection: AbstractConnection) -> None:
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
