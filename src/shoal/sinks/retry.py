"""Retries: wait for an output that is busy, full or unavailable, and reconnect to a server that was lost.

A technology says how to connect and what its errors mean. A TransientError is retried until the call succeeds; work
whose reply was lost is done again. The retries are reported about once a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from shoal.brokers.connection import CONNECT_SECONDS, ConnectionFault, describe_os_error
from shoal.errors import ShoalError, SinkRefused, SinkUnavailable

# The time limit of one attempt. A frozen server, or a network that drops packets, sends no error.
RESPONSE_SECONDS = 60.0
# Problems that workers cause each other and that pass within this time are not reported.
QUIET_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
REPORT_EVERY_SECONDS = 60.0

# Errors of a disk or of this process that may pass, also when an output is opened for the first time.
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PASSING = (*_FULL, errno.EIO, errno.EMFILE, errno.ENFILE)

Connection = TypeVar("Connection")


class TransientError(Exception):
    """An attempt failed, left nothing behind, and may succeed later.

    The message continues after the output's name: "is locked by another program". It is reported after
    `quiet_seconds`.
    """

    def __init__(self, message: str, *, quiet_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.quiet_seconds = quiet_seconds


def disk_error(error: OSError) -> TransientError:
    """An error of a file system, as a TransientError."""
    if error.errno in _FULL:
        return TransientError("has no space left on its disk")
    if error.errno == errno.EIO:
        return TransientError("has a disk I/O error")
    return TransientError(f"cannot be written ({error.strerror})")


def may_pass(error: OSError) -> bool:
    """Whether an error at the first use of a path may go away by itself. A missing permission does not."""
    return error.errno in _PASSING


async def retry(output: Path | str, attempt: Callable[[], Awaitable[None]], on_trouble: Callable[[str], None]) -> None:
    """Repeat the attempt while it raises TransientError. Cancelling stops the retries; other errors are raised."""
    started_mono = time.monotonic()
    reported_mono: float | None = None
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            await attempt()
            break
        except TransientError as error:
            now = time.monotonic()
            lasted = now - started_mono
            is_due = reported_mono is None or now - reported_mono >= REPORT_EVERY_SECONDS
            if lasted >= error.quiet_seconds and is_due:
                since = f" for {lasted:.0f} s" if lasted >= 1 else ""
                on_trouble(f"output {output} {error}{since}; waiting")
                reported_mono = now
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
    if reported_mono is not None:
        on_trouble("")


class Connected(ABC, Generic[Connection]):
    """One connection to a server, made again when it is lost.

    `shown` is the output's URI for messages, without its password. Readers of the same technology use `connect`,
    `abandon`, `refused` and `translated`.
    """

    def __init__(self, shown: str, on_trouble: Callable[[str], None]) -> None:
        self.shown = shown
        self._on_trouble = on_trouble
        self._connection: Connection | None = None
        self._closed = False

    async def open(self) -> None:
        async def nothing(connection: Connection) -> None:
            pass

        await self._retry(nothing)

    async def close(self) -> None:
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._disconnect(connection)
            except Exception:
                # An error does no harm here: everything that was confirmed is stored.
                self.abandon(connection)

    async def _retry(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        if self._closed:
            raise SinkUnavailable("This output was closed.")
        await retry(self.shown, lambda: self._attempt(work), self._on_trouble)

    async def _attempt(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(RESPONSE_SECONDS):
                if self._connection is None:
                    self._connection = await self.connect()
                    await self._prepare(self._connection)
                await work(self._connection)
        except BaseException as error:
            connected = self._connection is not None
            if self._connection is not None:
                # Also when cancelled: a reply that nobody waits for may be under way.
                self.abandon(self._connection)
                self._connection = None
            if isinstance(error, Exception) and not isinstance(error, SinkRefused | TransientError):
                raise self._explained(error, connected=connected) from error
            raise

    async def translated(self, batches: AsyncGenerator[list[Any], None]) -> AsyncGenerator[list[Any], None]:
        """The batches that a reader gets from the server. Errors become SinkUnavailable or SinkRefused."""
        try:
            while True:
                async with asyncio.timeout(RESPONSE_SECONDS):
                    batch: list[Any] = await anext(batches, [])
                if not batch:
                    break
                yield batch
        except ShoalError:
            raise
        except Exception as error:
            explained = error if isinstance(error, TransientError) else self._explained(error, connected=False)
            if isinstance(explained, TransientError):
                raise SinkUnavailable(f"The output {self.shown} {explained}.") from error
            raise explained from error
        finally:
            with contextlib.suppress(Exception):
                await batches.aclose()

    def _explained(self, error: Exception, *, connected: bool) -> Exception:
        """The exception to raise for an error of the driver: TransientError, SinkRefused, or the error itself."""
        for cause in (error, error.__cause__):
            if isinstance(cause, ssl.SSLCertVerificationError):
                return self.refused(f"has a certificate that is not trusted: {cause.verify_message.rstrip('.')}")
        if isinstance(error, TimeoutError):
            return TransientError("does not respond")
        if isinstance(error, OSError):
            return TransientError(f"cannot be reached ({describe_os_error(error)})")
        return error

    def _failed(self, fault: ConnectionFault, *, quiet_seconds: float = 0.0) -> Exception:
        if fault.transient:
            return TransientError(fault.sentence, quiet_seconds=quiet_seconds)
        return self.refused(fault.sentence)

    def refused(self, sentence: str) -> SinkRefused:
        return SinkRefused(f"The output {self.shown} {sentence}.")

    @abstractmethod
    async def connect(self) -> Connection:
        """A new connection to a server that accepts writes."""

    async def _prepare(self, connection: Connection) -> None:
        """Create what must exist before the first write, by a new connection."""

    @abstractmethod
    async def _disconnect(self, connection: Connection) -> None: ...

    @abstractmethod
    def abandon(self, connection: Connection) -> None:
        """Close it at once, without waiting for the server."""
