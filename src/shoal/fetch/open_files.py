"""Open files: how many connections a process can have, and how it waits when the system has none left.

A lack of files, buffers or memory on this machine says nothing about a host. It must never fail a page or slow down a
host.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import time
from collections.abc import Callable

EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# Files that a worker opens for other purposes: the store, outputs, lookups, its spiders.
_RESERVED = 128
_FIRST_SECONDS, _MOST_SECONDS = 0.1, 2.0
# Libraries report a lack of files as errors of their own, and a file may be free again by the time of the check.
_RECENT_SECONDS = 2.0


class NoSocket(Exception):
    """This machine has no file, buffer or memory left for a connection. Nothing was sent to the host."""


def connection_limit(configured: int) -> int:
    """`configured` connections, or as many as the limit of open files leaves room for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return configured
    return min(configured, max(8, soft - max(_RESERVED, soft // 4)))


class Shortage:
    """Whether the machine lacks files, for one fetcher. Warns once."""

    def __init__(self, on_warning: Callable[[str], None] | None) -> None:
        self._on_warning = on_warning
        self._seen_mono = float("-inf")

    def explains_failure(self) -> bool:
        """Whether no connection can be opened now, or could not be a moment ago."""
        try:
            socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()
        except OSError as error:
            if error.errno in EXHAUSTED:
                self._seen_mono = time.monotonic()
        return time.monotonic() - self._seen_mono < _RECENT_SECONDS

    async def wait(self, tries: int) -> None:
        """Wait for files to be closed, longer with each try."""
        self._seen_mono = time.monotonic()
        if self._on_warning is not None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            self._on_warning(
                f"The system has no room for another connection (limit of open files: {soft}). Requests wait; raise "
                "the limit with `ulimit -n`, or lower worker.hosts."
            )
            self._on_warning = None
        await asyncio.sleep(min(_MOST_SECONDS, _FIRST_SECONDS * 2.0 ** min(tries, 10)))
