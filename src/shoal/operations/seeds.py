"""Seeds: the URLs that a crawl starts from, and the URLs that are added while it runs.

Owns what a seed may be: a URL on the command line, or a line of a file or a pipe. Files are read in batches, so that a
million URLs are never in memory at once. Empty lines and lines that start with # are skipped; .gz files are unpacked.

`feed` adds URLs while a crawl runs. The facts of the crawl say whether a feed is under way (frontier/crawl_facts.py).
If the process that feeds a crawl is killed, this fact stays, and the crawl is not finished before the remaining URLs
have been added. Adding is idempotent: the next process starts from the beginning.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import re
import threading
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeVar, cast
from urllib.parse import unquote, urlsplit, urlunsplit

from shoal.errors import CrawlEnded, InvalidInput, InvalidUrl, StoreFull, StoreNotReady
from shoal.frontier import Frontier
from shoal.frontier.retry import until_ready
from shoal.model.crawl_spec import STORED_SEEDS
from shoal.model.visit import Visit
from shoal.urls.canonical import Target, canonical

# URLs that are added in one call while a crawl runs.
BATCH = 2000
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# A host with an optional port and path; no user and no other scheme, e.g. mailto:.
_BARE = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/?#@\\\[\]]+)(?::[0-9]{1,5})?(?:[/?#].*)?\Z")
# Without this check, http//example.org would be read as the host "http".
_MISSING_COLON = re.compile(r"(https?|ftp)//", re.IGNORECASE)
# Longer than any valid URL: a file without line ends must not fill the memory.
_MAX_LINE_BYTES = 1 << 16
_MAX_FAULTS = 3
_READ_ERRORS = (OSError, EOFError, zlib.error)
_T = TypeVar("_T")


def seed_url(text: str) -> str:
    """Return the canonical URL. As with curl and wget, `example.org/docs` means http://example.org/docs."""
    return seed_target(text).url


def seed_target(text: str) -> Target:
    """Return the canonical URL of a seed, with its parts."""
    text = text.strip()
    if mistyped := _MISSING_COLON.match(text):
        # Text before an @ may contain a password.
        shown = mistyped[0] if "@" in text else text[:80]
        raise InvalidUrl(f"{shown!r} is not a URL; did you mean {mistyped[1].lower()}://?")
    if not _SCHEME.match(text) and _BARE.match(text):
        text = f"http://{text}"
    return canonical(text)


def without_logins(urls: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return canonical URLs without credentials, and the credentials by origin, for `CrawlSpec.logins`.

    A URL appears in every row, list and log of its crawl; credentials must not.
    """
    plain: list[str] = []
    logins: dict[str, str] = {}
    for url in urls:
        without, login = _split_login(url)
        plain.append(without)
        if not login:
            continue
        origin = canonical(without).origin
        if logins.setdefault(origin, login) != login:
            raise InvalidInput(f"Two start URLs of {origin} have different credentials; crawl them separately.")
    return plain, logins


def seed_url_without_login(text: str) -> str:
    """Return the canonical URL of a seed that is added to a crawl that runs: its credentials could not be stored."""
    url, login = _split_login(seed_url(text))
    if login:
        raise InvalidUrl(f"{url[:200]!r} has credentials, which only the first start URLs of a crawl may have.")
    return url


def _split_login(url: str) -> tuple[str, str]:
    """Split a canonical URL into the URL without credentials, and `user:password`, '' if it has none."""
    if "@" not in url:
        return url, ""
    parts = urlsplit(url)
    user_info, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, ""
    user, _, password = user_info.partition(":")
    return urlunsplit(parts._replace(netloc=host)), f"{unquote(user)}:{unquote(password)}"


class Seeds:
    """One file of seeds; `-` is standard input. `first` raises for an invalid line, `rest` counts and skips it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.shown = "standard input" if source == "-" else source
        self.line_number = 0
        # The number of lines that `rest` skipped, and the errors of the first few.
        self.skipped = 0
        self.faults: list[str] = []
        self._is_first = True
        self._file = self._open()

    def first(self) -> list[str]:
        """Return the first thousand URLs. Raises InvalidInput with the line number if a line is not a URL."""
        urls = []
        for line in islice(self._lines(), STORED_SEEDS):
            if isinstance(line, InvalidUrl):
                raise line
            urls.append(line)
        self._is_first = False
        return urls

    async def rest(self) -> AsyncIterator[list[str]]:
        """Yield the URLs after the first thousand, in batches."""
        while batch := await _in_thread(self._batch):
            yield batch

    def _batch(self) -> list[str]:
        urls: list[str] = []
        for line in self._lines():
            if isinstance(line, str):
                urls.append(line)
                if len(urls) == BATCH:
                    break
            else:
                self.skipped += 1
                if len(self.faults) < _MAX_FAULTS:
                    self.faults.append(str(line))
        return urls

    def _lines(self) -> Iterator[str | InvalidUrl]:
        while line := self._read_line():
            self.line_number += 1
            try:
                text = line.decode().removeprefix("\ufeff").strip()
                if text and not text.startswith("#"):
                    # The first URLs are stored with the crawl, together with their credentials.
                    yield seed_url(text) if self._is_first else seed_url_without_login(text)
            except UnicodeDecodeError:
                yield InvalidUrl(f"Line {self.line_number} of {self.shown} is not UTF-8 text.")
            except InvalidUrl as error:
                yield InvalidUrl(f"Line {self.line_number} of {self.shown}: {error}")

    def _read_line(self) -> bytes:
        with self._read_errors():
            line = self._file.readline(_MAX_LINE_BYTES)
            tail = line
            while len(tail) == _MAX_LINE_BYTES and not tail.endswith(b"\n"):
                tail = self._file.readline(_MAX_LINE_BYTES)
            return line

    def _open(self) -> BinaryIO:
        with self._read_errors():
            if self.source == "-":
                # A duplicate: at exit, Python waits for a thread that reads from sys.stdin itself.
                return os.fdopen(os.dup(0), "rb")
            if self.source.lower().endswith(".gz"):
                return cast(BinaryIO, gzip.open(self.source))
            return Path(self.source).open("rb")

    @contextlib.contextmanager
    def _read_errors(self) -> Iterator[None]:
        try:
            yield
        except _READ_ERRORS as error:
            reason = getattr(error, "strerror", None) or str(error).rstrip(".")
            raise InvalidInput(f"Cannot read the seeds in {self.shown}: {reason}.") from None


async def feed(
    frontier: Frontier, crawl_id: str, batches: AsyncGenerator[Sequence[Visit], None], on_trouble: Callable[[str], None]
) -> int | None:
    """Add the visits. Returns how many were new, or None if the crawl ended first, by a limit or by a command.

    A store that is unavailable or full is retried: workers make room.
    """
    new = 0
    async with aclosing(batches):
        async for visits in batches:
            call = partial(frontier.add, crawl_id, visits, skip_invalid=True)
            try:
                new += (await until_ready(call, on_trouble, errors=(StoreNotReady, StoreFull))).new
            except CrawlEnded:
                return None
    return new


async def _in_thread(function: Callable[[], _T]) -> _T:
    """Run the function in a daemon thread, which Python does not wait for at exit: a pipe may stay silent forever."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def deliver(result: _T | None, error: Exception | None) -> None:
        if not future.cancelled():
            if error is None:
                future.set_result(cast(_T, result))
            else:
                future.set_exception(error)

    def work() -> None:
        result, failure = None, None
        try:
            result = function()
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(deliver, result, failure)

    threading.Thread(target=work, name="seeds", daemon=True).start()
    return await future
