"""One connection to one server, pipelined: many callers share it, replies come back in order.

It implements RESP2 with hiredis directly on an asyncio transport. That costs a fraction of redis-py's CPU time
(docs/decisions/0009-own-client.md has the figures), and WAIT must follow a script on the same connection anyway. A
connection never reconnects and never retries: it fails once, with ConnectionLost, and so do all callers that wait for
a reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis

from shoal.store.address import StoreAddress
from shoal.store.server_info import ServerInfo, parse_facts

# hiredis declares the command as a tuple of one element.
pack: Callable[[tuple[bytes | str | int | float, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]
_NOTHING = object()
# Longer than any pause of a healthy server (a fsync on a slow disk takes 1.5 s), shorter than a third of a lease.
_REPLY_SECONDS = 5.0
# A server that is busy with hundreds of clients gets up to four times as long.
_MOST_DOUBLINGS = 2
_FACTS_SECONDS = 10.0
# CONFIG may be forbidden: an error reply is accepted.
_INFO_COMMANDS = pack(("CONFIG", "GET", "appendfsync", "min-replicas-to-write", "save")) + pack(("INFO",))
Push = Callable[[Any], None]


class ConnectionLost(Exception):
    """The connection is gone or silent; whether the server ran the last commands is unknown."""


class ReplyError(Exception):
    """An error reply, as the server worded it. It is a value in a list of replies until a caller raises it."""


class ReplyTimeout:
    """How long the servers of one Store may take to reply.

    The time doubles after two connections in a row on which a server stayed silent: a busy server that needs longer
    would otherwise never complete a connection, and the attempts would keep it busy. It does not double after the
    first one, so that a retry soon finds another server that has become the primary.
    """

    def __init__(self, store_timeout_seconds: float = math.inf) -> None:
        # With a short store timeout, a silent connection is closed sooner, so that the reason is known in time.
        self._least_seconds = min(_REPLY_SECONDS, max(0.8 * store_timeout_seconds, 0.1))
        self._silences = 0

    @property
    def seconds(self) -> float:
        return float(self._least_seconds * 2 ** min(max(0, self._silences - 1), _MOST_DOUBLINGS))

    def note_silence(self) -> None:
        self._silences += 1

    def note_reply(self) -> None:
        self._silences = 0


class _Batch:
    __slots__ = ("future", "missing", "replies", "sent_mono")

    def __init__(self, missing: int, future: asyncio.Future[list[Any]], sent_mono: float) -> None:
        self.missing = missing
        self.replies: list[Any] = []
        self.future = future
        self.sent_mono = sent_mono


class Connection(asyncio.Protocol):
    """An open connection. `facts` is the server information read when it was opened."""

    facts: ServerInfo

    def __init__(self, where: str, reply_timeout: ReplyTimeout, *, push: Push | None = None) -> None:
        self.where = where
        self.known: set[str] = set()  # scripts that this server has cached since the connection was opened
        self.lost: ConnectionLost | None = None
        self.heard_mono = 0.0
        self.facts_mono = 0.0
        self.on_lost: Callable[[], None] | None = None
        # A replica nearby replies within milliseconds; other calls wait behind a WAIT for at most this long.
        self.wait_ms = int(min(1000.0, 500.0 * reply_timeout.seconds))
        self._push = push
        self._reply_timeout = reply_timeout
        self._reply_seconds = reply_timeout.seconds
        self._batches: deque[_Batch] = deque()
        self._reader = hiredis.Reader(replyError=ReplyError, notEnoughData=_NOTHING)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._watchdog: asyncio.TimerHandle | None = None

    def send(self, packed: bytes, count: int) -> asyncio.Future[list[Any]]:
        """Send `count` packed commands; the future returns their replies, with errors as values."""
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        if self.lost is not None or self._transport is None:
            future.set_exception(self.lost or ConnectionLost(f"{self.where} is not connected"))
            return future
        now_mono = self._loop.time()
        self._batches.append(_Batch(count, future, now_mono))
        if self._watchdog is None:
            self._watchdog = self._loop.call_at(now_mono + self._reply_seconds, self._watch)
        self._transport.write(packed)
        return future

    @property
    def silent_seconds(self) -> float:
        """How long the server has sent nothing although a reply is due."""
        if not self._batches:
            return 0.0
        return max(0.0, self._loop.time() - max(self.heard_mono, self._batches[0].sent_mono))

    async def ask(self, *command: str | bytes | int | float) -> Any:
        """Send one command and return its reply; an error reply is raised."""
        reply = (await self.send(pack(command), 1))[0]
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    async def refresh_facts(self) -> None:
        """Read the server information again if it is old: the number of replicas may change."""
        if self._loop.time() < self.facts_mono + _FACTS_SECONDS:
            return
        self.facts_mono = self._loop.time()
        config, info = await self.send(_INFO_COMMANDS, 2)
        if isinstance(info, bytes):
            self.facts = parse_facts(info, config)

    def write(self, *command: str | bytes | int | float) -> None:
        """Send a command whose reply arrives as a push (subscribed connections)."""
        if self._transport is not None and self.lost is None:
            self._transport.write(pack(command))

    def listen(self, push: Push) -> None:
        """Pass everything that arrives to `push` from now on."""
        self._push = push

    def close(self, reason: str = "it was closed here") -> None:
        self._fail(reason)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, no check: uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        tcp = transport.get_extra_info("socket")
        if tcp is not None and tcp.family != socket.AF_UNIX:
            _notice_dead_peers(tcp)

    def data_received(self, data: bytes) -> None:
        self.heard_mono = self._loop.time()
        reader, batches = self._reader, self._batches
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not _NOTHING:
                if self._push is not None:
                    self._push(reply)
                elif batches:
                    batch = batches[0]
                    batch.replies.append(reply)
                    batch.missing -= 1
                    if not batch.missing:
                        batches.popleft()
                        if not batch.future.done():  # its caller may have been cancelled
                            batch.future.set_result(batch.replies)
        except hiredis.ProtocolError:
            self._fail("it does not speak the Redis protocol")

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"the connection broke ({reason_of(error)})" if error else "it closed the connection")

    def _watch(self) -> None:
        self._watchdog = None
        if not self._batches or self.lost is not None:
            return
        # Any byte shows that the server is alive: a large reply or many calls may take longer than one reply.
        silent_since = max(self.heard_mono, self._batches[0].sent_mono)
        due = silent_since + self._reply_seconds
        if self._loop.time() >= due:
            self._reply_timeout.note_silence()
            self._fail(f"no reply for {self._reply_seconds:g} s")
        else:
            self._watchdog = self._loop.call_at(due, self._watch)

    def _fail(self, reason: str) -> None:
        if self.lost is not None:
            return
        self.lost = ConnectionLost(f"{self.where}: {reason}")
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._transport is not None:
            self._transport.abort()
        for batch in self._batches:
            if not batch.future.done():
                batch.future.set_exception(self.lost)
                batch.future.exception()  # no warning if the caller was cancelled and never retrieves the exception
        self._batches.clear()
        if self.on_lost is not None:
            self.on_lost()


async def dial(
    address: StoreAddress, reply_timeout: ReplyTimeout | None = None, *, sentinel: bool = False
) -> Connection:
    """Connect to the address's only endpoint, log in and read the server information.

    Raises ConnectionLost if there is no connection, ReplyError if the server refuses one of the first
    commands, ssl.SSLError if the certificate is invalid.
    """
    endpoint = address.endpoints[0]
    loop = asyncio.get_running_loop()
    reply_timeout = reply_timeout or ReplyTimeout()
    link = Connection(str(endpoint), reply_timeout)
    seconds, waiting_for = reply_timeout.seconds, "connection"
    try:
        async with asyncio.timeout(seconds):
            if endpoint.path:
                await loop.create_unix_connection(lambda: link, endpoint.path)
            else:
                waiting_for = "TLS handshake" if address.tls else "connection"
                await loop.create_connection(lambda: link, endpoint.host, endpoint.port, ssl=address.tls)
            waiting_for = "reply"
            await _greet(link, address, sentinel)
    except ssl.SSLError:
        link.close()
        raise
    except TimeoutError:
        link.close()
        if waiting_for == "reply":
            reply_timeout.note_silence()
        raise ConnectionLost(f"{endpoint}: no {waiting_for} within {seconds:g} s") from None
    except OSError as error:
        link.close()
        raise ConnectionLost(f"{endpoint}: {reason_of(error)}") from error
    except BaseException:
        link.close()
        raise
    reply_timeout.note_reply()
    return link


async def _greet(link: Connection, address: StoreAddress, sentinel: bool) -> None:
    """Log in, select the database and read the server information, in one round trip."""
    commands: list[tuple[str | int, ...]] = []
    login = (address.sentinel_credentials if sentinel else address.credentials).command()
    if login is not None:
        commands.append(login)
    if address.db and not sentinel:
        commands.append(("SELECT", address.db))
    packed = b"".join(pack(command) for command in commands) + (pack(("PING",)) if sentinel else _INFO_COMMANDS)
    *replies, config, last = [None, *await link.send(packed, len(commands) + (1 if sentinel else 2))]
    for reply in (*replies, config, last) if sentinel else (*replies, last):
        if isinstance(reply, ReplyError):
            raise reply
    if not sentinel:
        link.facts = parse_facts(last, config)
        link.facts_mono = asyncio.get_running_loop().time()


def reason_of(error: BaseException | None) -> str:
    """The system's text for an error, without numbers and addresses."""
    if isinstance(error, socket.gaierror):
        return "its name does not resolve"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        # asyncio words its connection errors with address and number; the bare text reads better.
        text = os.strerror(error.errno)
        return text[:1].lower() + text[1:]
    return str(error) or type(error).__name__


def _notice_dead_peers(tcp: Any) -> None:
    # A peer that vanished silently is detected after about 20 s, even without traffic.
    for level, name, value in (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 10),
        (socket.IPPROTO_TCP, "TCP_KEEPALIVE", 10),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 2),
    ):
        if hasattr(socket, name):
            with contextlib.suppress(OSError):
                tcp.setsockopt(level, getattr(socket, name), value)
