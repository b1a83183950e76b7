"""The pages of a WARC archive: each response is processed like in a worker, so that it gives the same row as a crawl.

The archive is read once to build an index of its responses in a temporary database, because only the last response of a
URL is used, and it can be anywhere. Then these responses are read. An archive does not have depth, attempt, worker,
spider and file, which get their default values, nor the pages without a response. The redirects of a
page are those that were followed before it.
"""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from shoal.errors import InvalidInput, SinkRefused, UnknownCrawl
from shoal.model.crawl import Crawl, State
from shoal.model.limits import Limits
from shoal.model.record import Record
from shoal.model.response import Response, Timings
from shoal.model.visit import Visit, VisitMeta
from shoal.sinks.columns import last_of_each
from shoal.sinks.files.warc_reader import WarcRecord, fields, files_of, record_at, records
from shoal.sinks.reader import Cursor
from shoal.urls.canonical import canonical, resolve_header
from shoal.worker import page_record
from shoal.worker.crawl_context import CrawlContext
from shoal.worker.outcome import MAX_HOPS, Action, decide_status
from shoal.worker.page_processor import read_page

_RESPONSE_TYPES = ("response", "resource", "revisit")
# The longest metadata record that is read.
_MAX_METADATA_BYTES = 1 << 16
# `role`: 'row' has a row of its own, 'confirms' is a 304, 'none' is a redirect to another URL. `body` is the id of the
# record that has the body.
_MAKE = """
    CREATE TABLE responses (id TEXT PRIMARY KEY, crawl TEXT, url TEXT, at REAL, file INTEGER, position INTEGER,
        role TEXT, body TEXT, status INTEGER, target TEXT, seconds REAL DEFAULT 0, received INTEGER DEFAULT 0);
    CREATE INDEX by_url ON responses (crawl, url, at);
    CREATE INDEX by_target ON responses (crawl, target, at) WHERE target <> '';
"""
# SQLite takes the other columns from the row that has the maximum.
_LAST = """
    SELECT id, max(CASE role WHEN 'row' THEN at ELSE 0 END) FROM responses WHERE role <> 'none' GROUP BY crawl, url
    ORDER BY file, position"""

_REDIRECTS = "SELECT id, max(at) FROM responses WHERE role = 'none' GROUP BY crawl, url"


class _IndexedResponse(NamedTuple):
    id: str
    crawl: str
    url: str
    at: float
    file: int
    position: int
    role: str
    body: str
    status: int
    target: str
    seconds: float = 0.0
    received: int = 0


_COLUMNS = ", ".join(_IndexedResponse._fields)


def pages(path: Path, crawl: str | None) -> Iterator[tuple[Cursor, Record]]:
    """The rows of an archive, a folder or a file, of one crawl or of all."""
    with contextlib.closing(sqlite3.connect("", isolation_level=None)) as index:
        files = files_of(path)
        if not files:
            raise InvalidInput(f"There is no archive {path} with .warc.gz files to read.")
        index.executescript(_MAKE)
        # A private, temporary file.
        index.execute("PRAGMA synchronous = OFF")
        index.execute("BEGIN")
        for number, file in enumerate(files):
            _add_to_index(index, number, file)
        crawls = [name for (name,) in index.execute("SELECT DISTINCT crawl FROM responses")]
        if crawl is not None and crawls and crawl not in crawls:
            raise UnknownCrawl(f"The archive {path} has no page of crawl {crawl!r}; it has {', '.join(crawls[:5])}.")
        archive = _Archive(index, files)
        for id_, _ in index.execute(_LAST):
            indexed = archive.find("id = ?", id_)
            if indexed is not None and crawl in (None, indexed.crawl):
                yield (), archive.record(indexed)
        for id_, _ in index.execute(_REDIRECTS):
            indexed = archive.find("id = ?", id_)
            if indexed is not None and crawl in (None, indexed.crawl) and (record := archive.failed_redirect(indexed)):
                yield (), record


def _add_to_index(index: sqlite3.Connection, number: int, file: Path) -> None:
    """Put the responses of one file into the index."""
    crawl = file.name.partition(".")[0]
    for warc_record in records(file):
        kind = warc_record.headers.get("warc-type", "")
        content_type = warc_record.headers.get("content-type", "")
        if content_type == "application/warc-fields" and warc_record.block.left <= _MAX_METADATA_BYTES:
            metadata = dict(fields(_text(warc_record.block.rest()).split("\r\n")))
            if kind == "warcinfo":
                crawl = metadata.get("ispartof") or crawl
            elif kind == "metadata":
                index.execute(
                    "UPDATE responses SET seconds = ?, received = ? WHERE id = ?",
                    (_count(metadata, "fetchtimems") / 1000, _count(metadata, "bytesreceived"),
                     warc_record.headers.get("warc-concurrent-to", "")),
                )  # fmt: skip
        elif kind in _RESPONSE_TYPES:
            index.execute(
                f"INSERT OR REPLACE INTO responses ({_COLUMNS}) VALUES ({', '.join('?' * 12)})",  # noqa: S608
                _indexed(warc_record, crawl, number),
            )


def _indexed(warc_record: WarcRecord, crawl: str, file: int) -> _IndexedResponse:
    headers, url = warc_record.headers, warc_record.headers.get("warc-target-uri", "").strip("<>")
    status, http_headers = _status_and_headers(warc_record)
    target = ""
    identical = headers.get("warc-type") == "revisit" and "identical-payload-digest" in headers.get("warc-profile", "")
    decision = decide_status(status, conditional=True, location="location" in http_headers)
    if decision.action is Action.REDIRECT:
        there = resolve_header(url, http_headers["location"])
        target = there.url if there is not None else ""
    role = "confirms" if decision.action is Action.CONFIRM else "none" if target else "row"
    body = headers.get("warc-refers-to", "") if identical else headers.get("warc-record-id", "")
    try:
        at = datetime.datetime.fromisoformat(headers.get("warc-date", "")).timestamp()
    except ValueError:
        raise warc_record.block.invalid("has no valid date") from None
    return _IndexedResponse(
        headers.get("warc-record-id", ""), crawl, url, at, file, warc_record.position, role, body, status, target
    )


class _Archive:
    def __init__(self, index: sqlite3.Connection, files: list[Path]) -> None:
        self._index = index
        self._files = files
        self._contexts: dict[str, CrawlContext] = {}

    def find(self, condition: str, *values: object) -> _IndexedResponse | None:
        row = self._index.execute(f"SELECT {_COLUMNS} FROM responses WHERE {condition}", values).fetchone()  # noqa: S608
        return _IndexedResponse(*row) if row else None

    def record(self, indexed: _IndexedResponse) -> Record:
        """The row of a response, updated by a later 304."""
        record = self._read(indexed)
        later = self.find(
            "crawl = ? AND url = ? AND at > ? AND role = 'confirms' ORDER BY at DESC LIMIT 1",
            indexed.crawl, indexed.url, indexed.at,
        )  # fmt: skip
        return last_of_each([record, self._read(later)])[0] if later is not None else record

    def failed_redirect(self, indexed: _IndexedResponse) -> Record | None:
        """The row of a redirect that was not followed to a page; None for one that was."""
        chain = self._chain(indexed)
        loops = indexed.target == indexed.url or any(indexed.target == url for url, _ in chain)
        if not loops and len(chain) < MAX_HOPS:
            return None
        if self.find("crawl = ? AND url = ? AND role <> 'none'", indexed.crawl, indexed.url) is not None:
            return None
        reason = "redirect loop" if len(chain) < MAX_HOPS else "too many redirects"
        visit = _visit(indexed, chain)
        return page_record.failed(visit, self._context(indexed.crawl), "", reason, self._page(indexed), indexed.at)

    def _read(self, indexed: _IndexedResponse) -> Record:
        page, context = self._page(indexed), self._context(indexed.crawl)
        visit = _visit(indexed, self._chain(indexed))
        decision = decide_status(indexed.status, conditional=True, location=False)
        if decision.action is Action.CONFIRM:
            return page_record.confirmed(page, visit, context, "")
        if decision.action is not Action.STORE:
            reason = decision.reason
            if reason == "redirect without location" and page.header("location"):
                reason = "invalid redirect target"
            return page_record.failed(visit, context, "", reason, page, indexed.at)
        try:
            return read_page(page, visit, canonical(indexed.url), context, "")[0]
        except Exception as error:
            # Like in a worker: a page that cannot be processed fails alone.
            return page_record.failed(visit, context, "", f"reading: {type(error).__name__}", page, indexed.at)

    def _page(self, indexed: _IndexedResponse) -> Response:
        with record_at(self._files[indexed.file], indexed.position) as warc_record:
            status, http_headers, version = _head(warc_record)
            headers = warc_record.headers
            body = warc_record.block.rest() if headers.get("warc-type") != "revisit" else b""
            if body and not {"content-encoding", "transfer-encoding"}.isdisjoint(dict(http_headers)):
                raise warc_record.block.invalid("has an encoded body: only archives from Shoal can be read")
        if indexed.body != indexed.id:
            body = self._body(indexed)
        protocol = headers.get("warc-protocol", "")
        return Response(
            url=indexed.url, status=status, headers=tuple(http_headers), body=body,
            address=headers.get("warc-ip-address", ""),
            http_version=protocol.removeprefix("h") if protocol in ("h2", "h3") else version,
            bytes_received=indexed.received, started_at=indexed.at, timings=Timings(total=indexed.seconds),
        )  # fmt: skip

    def _body(self, indexed: _IndexedResponse) -> bytes:
        """The body of the response that a revisit refers to."""
        original = self.find("id = ?", indexed.body)
        if original is None:
            raise SinkRefused(
                f"The archive has {indexed.url[:200]} as an unchanged page, but not the earlier response; restore the "
                "file that contains it."
            )
        with record_at(self._files[original.file], original.position) as warc_record:
            _head(warc_record)
            return warc_record.block.rest()

    def _chain(self, indexed: _IndexedResponse) -> list[tuple[str, int]]:
        """The redirects that were followed to this response."""
        chain: list[tuple[str, int]] = []
        seen, there = {indexed.url}, indexed
        while len(chain) < MAX_HOPS:
            before = self.find(
                "crawl = ? AND target = ? AND target <> '' AND at <= ? ORDER BY at LIMIT 1",
                there.crawl, there.url, there.at,
            )  # fmt: skip
            if before is None or before.url in seen:
                break
            seen.add(before.url)
            chain.insert(0, (before.url, before.status))
            there = before
        return chain

    def _context(self, crawl: str) -> CrawlContext:
        """A crawl that follows no links: its pages are processed, and their links counted."""
        if crawl not in self._contexts:
            crawled = Crawl(crawl, crawl, State.FINISHED, 0, Limits(max_depth=0), 0.0)
            self._contexts[crawl] = CrawlContext(crawled, {}, {})
        return self._contexts[crawl]


def _visit(indexed: _IndexedResponse, chain: list[tuple[str, int]]) -> Visit:
    return Visit(url=indexed.url, found="redirect" if chain else "link", meta=VisitMeta(chain=tuple(chain)).pack())


def _status_and_headers(warc_record: WarcRecord) -> tuple[int, dict[str, str]]:
    status, http_headers, _ = _head(warc_record)
    # Of several headers with one name, the first is used.
    return status, dict(reversed(http_headers))


def _head(warc_record: WarcRecord) -> tuple[int, list[tuple[str, str]], str]:
    """The status, headers and HTTP version of a response; defaults for a record that is not HTTP."""
    if warc_record.headers.get("warc-type") == "resource":
        return 200, [("content-type", warc_record.headers.get("content-type", ""))], ""
    line, *lines = warc_record.block.head().split("\r\n")
    version, _, status = line.partition(" ")
    if not version.startswith("HTTP/") or not status[:3].isdecimal():
        raise warc_record.block.invalid("is not an HTTP response")
    return int(status[:3]), fields(lines), version.removeprefix("HTTP/")


def _count(values: dict[str, Any], name: str) -> int:
    text = str(values.get(name, ""))
    return int(text) if text.isdecimal() and len(text) < 16 else 0


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
