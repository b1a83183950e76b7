"""Kept bodies: each is one file or object, named by the hash of its content.

    ab/cd/abcd....html     the SHA-256 of the body in hex, with an ending that its content type gives

A body is durable when `keep` returns, and keeping it again changes nothing: whoever is killed or writes the same at the
same time, a name means one content. Nothing of a URL or of what a server calls its file comes into a name.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator

from shoal.errors import SinkUnavailable
from shoal.sinks.retry import SAY_EVERY_SECONDS, persist

# How many bodies are on their way at a time; the others wait. Flushes of several files share one of the disk's.
PUTS = 8
# Hashing more than this holds up the loop.
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
    """Where one worker keeps bodies. Keeping waits for as long as the place is full or away, and says so."""

    def __init__(self, shown: str, on_trouble: Callable[[str], None]) -> None:
        self._shown = shown
        self._voice = _Voice(on_trouble)
        self._room = asyncio.Semaphore(PUTS)
        self._opening = asyncio.Lock()
        self._opened = self._closed = False

    async def open(self) -> None:
        """Make what is missing. SinkRefused in one sentence when bodies can never be kept here as it is."""
        async with self._opening:
            if not self._opened:
                await self._persist(self._begin)
                self._opened = True

    async def keep(self, body: bytes, content_type: str) -> str:
        """Keep it, and say where it is: a path or a URL."""
        if not self._opened:
            await self.open()
        kind = content_type.partition(";")[0].strip().lower()
        kind = kind if kind in ENDINGS else UNKNOWN_TYPE
        hashed = hashlib.sha256(body) if len(body) < LARGE_BYTES else await asyncio.to_thread(hashlib.sha256, body)
        digest = hashed.hexdigest()
        name = f"{digest[:2]}/{digest[2:4]}/{digest}{ENDINGS.get(kind, UNKNOWN_ENDING)}"
        async with self._room:
            await self._persist(lambda: self._put(name, body, kind))
        return self._where(name)

    async def close(self) -> None:
        """Nothing more comes. A second call does nothing."""
        self._closed = True

    async def _persist(self, attempt: Callable[[], Awaitable[None]]) -> None:
        if self._closed:
            raise SinkUnavailable("This place for files was closed.")
        with self._voice.one() as on_trouble:
            await persist(self._shown, attempt, on_trouble)

    @abstractmethod
    async def _begin(self) -> None: ...

    @abstractmethod
    async def _put(self, name: str, body: bytes, content_type: str) -> None:
        """Durable when it returns. Hindrance when it cannot be done now."""

    @abstractmethod
    def _where(self, name: str) -> str: ...


class _Voice:
    """Many wait for the same: one of them speaks."""

    def __init__(self, on_trouble: Callable[[str], None]) -> None:
        self._on_trouble = on_trouble
        self._waiting = 0
        self._said_mono = 0.0

    @contextlib.contextmanager
    def one(self) -> Iterator[Callable[[str], None]]:
        waits = False

        def say(sentence: str) -> None:
            nonlocal waits
            if sentence:
                now = time.monotonic()
                if not self._waiting or now - self._said_mono >= SAY_EVERY_SECONDS:
                    self._said_mono = now
                    self._on_trouble(sentence)
                self._waiting += not waits
                waits = True

        try:
            yield say
        finally:
            # Also when it was cancelled: nobody would take the sentence back.
            self._waiting -= waits
            if waits and not self._waiting:
                self._on_trouble("")
