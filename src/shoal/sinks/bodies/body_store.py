"""Stored response bodies (`--files`): each is one file or object, named by the hash of its content.

    ab/cd/abcd....html     the SHA-256 of the body in hex, with an ending for its content type

A body is durable when `keep` returns. Storing it again changes nothing: a name stands for one content, also after a
crash and when workers store the same body at the same time. No part of a URL or of a server's file name is in a name.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator

from shoal.errors import SinkUnavailable
from shoal.sinks.retry import REPORT_EVERY_SECONDS, retry

# How many bodies are stored at the same time; others wait. Flushes of several files share one flush of the disk.
PUTS = 8
# Larger bodies are hashed in a thread, so that they do not block the event loop.
LARGE_BYTES = 1 << 20

ENDINGS = {
    "application/atom+xml": ".xml",
    "application/epub+zip": ".epub",
    "application/gzip": ".gz",
    "application/javascript": ".js",
    "application/json": ".json",
    "application/ld+json": ".json",
    "application/msword": ".doc",
    "application/pdf": ".pdf",
    "application/rss+xml": ".xml",
    "application/rtf": ".rtf",
    "application/vnd.ms-excel": ".xls",
    "application/vnd.ms-powerpoint": ".ppt",
    "application/vnd.oasis.opendocument.presentation": ".odp",
    "application/vnd.oasis.opendocument.spreadsheet": ".ods",
    "application/vnd.oasis.opendocument.text": ".odt",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/x-7z-compressed": ".7z",
    "application/x-gzip": ".gz",
    "application/x-tar": ".tar",
    "application/xhtml+xml": ".xhtml",
    "application/xml": ".xml",
    "application/zip": ".zip",
    "audio/flac": ".flac",
    "audio/mp4": ".m4a",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/wav": ".wav",
    "font/woff": ".woff",
    "font/woff2": ".woff2",
    "image/avif": ".avif",
    "image/bmp": ".bmp",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "image/tiff": ".tif",
    "image/vnd.microsoft.icon": ".ico",
    "image/webp": ".webp",
    "image/x-icon": ".ico",
    "text/calendar": ".ics",
    "text/css": ".css",
    "text/csv": ".csv",
    "text/html": ".html",
    "text/javascript": ".js",
    "text/markdown": ".md",
    "text/plain": ".txt",
    "text/xml": ".xml",
    "video/mp4": ".mp4",
    "video/mpeg": ".mpg",
    "video/webm": ".webm",
}
UNKNOWN_TYPE, UNKNOWN_ENDING = "application/octet-stream", ".bin"


class BodyStore(ABC):
    """Where one worker stores bodies. `keep` waits while the store is full or unavailable, and reports that."""

    def __init__(self, shown: str, on_trouble: Callable[[str], None]) -> None:
        self._shown = shown
        self._report = _SharedReport(on_trouble)
        self._slots = asyncio.Semaphore(PUTS)
        self._opening = asyncio.Lock()
        self._opened = self._closed = False

    async def open(self) -> None:
        """Create what is missing. SinkRefused in one sentence if bodies can never be stored here as it is."""
        async with self._opening:
            if not self._opened:
                await self._retry(self._prepare)
                self._opened = True

    async def keep(self, body: bytes, content_type: str) -> str:
        """Store a body; returns its path or URL."""
        if not self._opened:
            await self.open()
        kind = content_type.partition(";")[0].strip().lower()
        kind = kind if kind in ENDINGS else UNKNOWN_TYPE
        hashed = hashlib.sha256(body) if len(body) < LARGE_BYTES else await asyncio.to_thread(hashlib.sha256, body)
        digest = hashed.hexdigest()
        name = f"{digest[:2]}/{digest[2:4]}/{digest}{ENDINGS.get(kind, UNKNOWN_ENDING)}"
        async with self._slots:
            await self._retry(lambda: self._put(name, body, kind))
        return self._location(name)

    async def close(self) -> None:
        """No more bodies follow. A second call does nothing."""
        self._closed = True

    async def _retry(self, attempt: Callable[[], Awaitable[None]]) -> None:
        if self._closed:
            raise SinkUnavailable("This body store was closed.")
        with self._report.waiter() as on_trouble:
            await retry(self._shown, attempt, on_trouble)

    @abstractmethod
    async def _prepare(self) -> None: ...

    @abstractmethod
    async def _put(self, name: str, body: bytes, content_type: str) -> None:
        """Store a body durably. TransientError if that is not possible now."""

    @abstractmethod
    def _location(self, name: str) -> str: ...


class _SharedReport:
    """One report for all calls that wait for the same store."""

    def __init__(self, on_trouble: Callable[[str], None]) -> None:
        self._on_trouble = on_trouble
        self._waiting = 0
        self._reported_mono = 0.0

    @contextlib.contextmanager
    def waiter(self) -> Iterator[Callable[[str], None]]:
        waits = False

        def report(sentence: str) -> None:
            nonlocal waits
            if sentence:
                now = time.monotonic()
                if not self._waiting or now - self._reported_mono >= REPORT_EVERY_SECONDS:
                    self._reported_mono = now
                    self._on_trouble(sentence)
                self._waiting += not waits
                waits = True

        try:
            yield report
        finally:
            # Also after a cancellation: otherwise the report would never be withdrawn.
            self._waiting -= waits
            if waits and not self._waiting:
                self._on_trouble("")
