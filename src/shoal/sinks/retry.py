"""One connection to a server that is made again when it is lost, and the patience around it.

A technology says how to connect and what its errors mean. A server that is away, restarts, is full or does not answer
is tried again; what was done without the answer coming back is done again.

Waiting for an output that is busy, full or away, and saying so now and then.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Generic, TypeVar

from shoal.brokers.connection import CONNECT_SECONDS, ConnectionFault, describe_os_error
from shoal.errors import SinkRefused, SinkUnavailable

# How long an attempt may take. A server that is frozen, or a network that swallows packets, says nothing at all.
ANSWER_SECONDS = 60.0
# What heals by itself within a moment, as between workers, is nothing to tell a person.
QUIET_SECONDS = 5.0

Connection = TypeVar("Connection")


class Connected(ABC, Generic[Connection]):
    """`shown` is the output's name for people, without secrets."""

    def __init__(self, shown: str, on_trouble: Callable[[str], None]) -> None:
        self._shown = shown
        self._on_trouble = on_trouble
        self._connection: Connection | None = None
        self._closed = False

    async def open(self) -> None:
        async def nothing(connection: Connection) -> None:
            pass

        await self._persist(nothing)

    async def close(self) -> None:
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._disconnect(connection)
            except Exception:
                # Whatever closing has to say: everything that was confirmed is kept.
                self._abandon(connection)

    async def _persist(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        if self._closed:
            raise SinkUnavailable("This output was closed.")
        await persist(self._shown, lambda: self._attempt(work), self._on_trouble)

    async def _attempt(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if self._connection is None:
                    self._connection = await self._connect()
                    await self._prepare(self._connection)
                await work(self._connection)
        except BaseException as error:
            connected = self._connection is not None
            if self._connection is not None:
                # Also when cancelled: an answer may be on its way that nobody waits for.
                self._abandon(self._connection)
                self._connection = None
            if isinstance(error, Exception) and not isinstance(error, SinkRefused | TransientError):
                raise self._meaning(error, connected=connected) from error
            raise

    def _meaning(self, error: Exception, *, connected: bool) -> Exception:
        for one in (error, error.__cause__):
            if isinstance(one, ssl.SSLCertVerificationError):
                return self._refused(f"has a certificate that is not trusted: {one.verify_message.rstrip('.')}")
        if isinstance(error, TimeoutError):
            return TransientError("does not respond")
        if isinstance(error, OSError):
            return TransientError(f"cannot be reached ({describe_os_error(error)})")
        return error

    def _refused(self, sentence: str) -> SinkRefused:
        return SinkRefused(f"The output {self._shown} {sentence}.")

    def _failed(self, fault: ConnectionFault, *, quiet_seconds: float = 0.0) -> Exception:
        """The exception to raise for a fault: one that is retried, or SinkRefused."""
        if fault.transient:
            return TransientError(fault.sentence, quiet_seconds=quiet_seconds)
        return self._refused(fault.sentence)

    @abstractmethod
    async def _connect(self) -> Connection:
        """A connection to something that is there and can be written to."""

    async def _prepare(self, connection: Connection) -> None:
        """See to what must be there before anything is written, by a connection that is new."""

    @abstractmethod
    async def _disconnect(self, connection: Connection) -> None: ...

    @abstractmethod
    def _abandon(self, connection: Connection) -> None:
        """Close it at once, whatever it is doing."""


FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
SAY_EVERY_SECONDS = 60.0


class TransientError(Exception):
    """An attempt failed in a way that time or a person can heal, and left nothing behind.

    The message goes on after the output's name: "is locked by another program". Within `quiet_seconds` it is nothing
    to speak of.
    """

    def __init__(self, message: str, *, quiet_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.quiet_seconds = quiet_seconds


async def persist(
    output: Path | str, attempt: Callable[[], Awaitable[None]], on_trouble: Callable[[str], None]
) -> None:
    """Attempt it until there is no Hindrance. Cancelling ends the waiting; other errors pass."""
    started = time.monotonic()
    said_at: float | None = None
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            await attempt()
            break
        except TransientError as hindrance:
            now = time.monotonic()
            lasted = now - started
            if lasted >= hindrance.quiet_seconds and (said_at is None or now - said_at >= SAY_EVERY_SECONDS):
                since = f" for {lasted:.0f} s" if lasted >= 1 else ""
                on_trouble(f"output {output} {hindrance}{since}; waiting")
                said_at = now
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
    if said_at is not None:
        on_trouble("")
