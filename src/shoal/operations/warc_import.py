"""The pages of a WARC archive: each answer read as a worker reads it, so that its row is the one of a crawl.

The archive is gone through once for an index of its answers, in a temporary database, since the last of a URL counts
wherever it is; then the answers that count are read. What an archive does not have is as in a new record: depth,
attempt, worker, spider, file, and the pages that no answer came from. Of redirects it has those that were followed
before the page.
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
from shoal.model.crawl_spec import Limits
from shoal.model.record import Record
from shoal.model.response import Response, Timings
from shoal.model.visit import Visit, VisitMeta
from shoal.sinks.columns import last_of_each
from shoal.sinks.files.warc_reader import Found, fields, files_of, record_at, records
from shoal.sinks.reader import Place
from shoal.urls.canonical import canonical, resolve_header
from shoal.worker import page_processor
from shoal.worker.crawl_context import CrawlContext
from shoal.worker.outcome import MAX_HOPS, Action, decide_status

_ANSWERS = ("response", "resource", "revisit")
# What is told of an answer in a record of its own.
_MOST_TOLD = 1 << 16
# `what`: a row of its own, one that only confirms, or none because a redirect leads on. `body` is the record with it.
_MAKE = """
    CREATE TABLE answers (id TEXT PRIMARY KEY, crawl TEXT, url TEXT, at REAL, file INTEGER, place INTEGER, what TEXT,
        body TEXT, status INTEGER, leads TEXT, seconds REAL DEFAULT 0, received INTEGER DEFAULT 0);
    CREATE INDEX by_url ON answers (crawl, url, at);
    CREATE INDEX by_leads ON answers (crawl, leads, at) WHERE leads <> '';
"""
# SQLite takes the other columns from the row that has the largest.
_LAST = """
    SELECT id, max(CASE what WHEN 'row' THEN at ELSE 0 END) FROM answers WHERE what <> 'none' GROUP BY crawl, url
    ORDER BY file, place"""

_REDIRECTS = "SELECT id, max(at) FROM answers WHERE what = 'none' GROUP BY crawl, url"


class _Answer(NamedTuple):
    id: str
    crawl: str
    url: str
    at: float
    file: int
    place: int
    what: str
    body: str
    status: int
    leads: str
    seconds: float = 0.0
    received: int = 0


def pages(path: Path, crawl: str | None) -> Iterator[tuple[Place, Record]]:
    """The rows of an archive, a folder or a file, of one crawl or of all."""
    with contextlib.closing(sqlite3.connect("", isolation_level=None)) as index:
        files = files_of(path)
        if not files:
            raise InvalidInput(f"There is no archive {path} with .warc.gz files to read.")
        index.executescript(_MAKE)
        # Nobody else sees it, and nothing of it is to last.
        index.execute("PRAGMA synchronous = OFF")
        index.execute("BEGIN")
        for number, file in enumerate(files):
            _note(index, number, file)
        crawls = [name for (name,) in index.execute("SELECT DISTINCT crawl FROM answers")]
        if crawl is not None and crawls and crawl not in crawls:
            raise UnknownCrawl(f"The archive {path} has no page of crawl {crawl!r}; it has {', '.join(crawls[:5])}.")
        archive = _Archive(index, files)
        for found, _ in index.execute(_LAST):
            answer = archive.answer("id = ?", found)
            if answer is not None and crawl in (None, answer.crawl):
                yield (), archive.record(answer)
        for found, _ in index.execute(_REDIRECTS):
            answer = archive.answer("id = ?", found)
            if answer is not None and crawl in (None, answer.crawl) and (record := archive.astray(answer)):
                yield (), record


def _note(index: sqlite3.Connection, number: int, file: Path) -> None:
    """Put the answers of one file into the index."""
    crawl = file.name.partition(".")[0]
    for found in records(file):
        kind, about = found.headers.get("warc-type", ""), found.headers.get("content-type", "")
        if about == "application/warc-fields" and found.block.left <= _MOST_TOLD:
            told = dict(fields(_text(found.block.rest()).split("\r\n")))
            if kind == "warcinfo":
                crawl = told.get("ispartof") or crawl
            elif kind == "metadata":
                index.execute(
                    "UPDATE answers SET seconds = ?, received = ? WHERE id = ?",
                    (_whole(told, "fetchtimems") / 1000, _whole(told, "bytesreceived"),
                     found.headers.get("warc-concurrent-to", "")),
                )  # fmt: skip
        elif kind in _ANSWERS:
            index.execute(
                f"INSERT OR REPLACE INTO answers ({', '.join(_Answer._fields)}) VALUES ({', '.join('?' * 12)})",  # noqa: S608
                _indexed(found, crawl, number),
            )


def _indexed(found: Found, crawl: str, file: int) -> _Answer:
    headers, url = found.headers, found.headers.get("warc-target-uri", "").strip("<>")
    status, told = _answer(found)
    leads = ""
    same = headers.get("warc-type") == "revisit" and "identical-payload-digest" in headers.get("warc-profile", "")
    decision = decide_status(status, conditional=True, location="location" in told)
    if decision.action is Action.REDIRECT:
        there = resolve_header(url, told["location"])
        leads = there.url if there is not None else ""
    what = "confirms" if decision.action is Action.CONFIRM else "none" if leads else "row"
    body = headers.get("warc-refers-to", "") if same else headers.get("warc-record-id", "")
    try:
        at = datetime.datetime.fromisoformat(headers.get("warc-date", "")).timestamp()
    except ValueError:
        raise found.block.broken("has no date") from None
    return _Answer(headers.get("warc-record-id", ""), crawl, url, at, file, found.place, what, body, status, leads)


class _Archive:
    def __init__(self, index: sqlite3.Connection, files: list[Path]) -> None:
        self._index = index
        self._files = files
        self._conducts: dict[str, CrawlContext] = {}

    def answer(self, which: str, *given: object) -> _Answer | None:
        row = self._index.execute(f"SELECT {', '.join(_Answer._fields)} FROM answers WHERE {which}", given).fetchone()  # noqa: S608
        return _Answer(*row) if row else None

    def record(self, answer: _Answer) -> Record:
        """The row of an answer, with what a later 304 has confirmed."""
        record = self._read(answer)
        later = self.answer(
            "crawl = ? AND url = ? AND at > ? AND what = 'confirms' ORDER BY at DESC LIMIT 1",
            answer.crawl, answer.url, answer.at,
        )  # fmt: skip
        return last_of_each([record, self._read(later)])[0] if later is not None else record

    def astray(self, answer: _Answer) -> Record | None:
        """The row of a redirect that led nowhere; None of one that was followed."""
        chain = self._chain(answer)
        loops = answer.leads == answer.url or any(answer.leads == url for url, _ in chain)
        if not loops and len(chain) < MAX_HOPS:
            return None
        if self.answer("crawl = ? AND url = ? AND what <> 'none'", answer.crawl, answer.url) is not None:
            return None
        reason = "redirect loop" if len(chain) < MAX_HOPS else "too many redirects"
        visit = _visit(answer, chain)
        return page_processor.failed(visit, self._conduct(answer.crawl), "", reason, self._page(answer), answer.at)

    def _read(self, answer: _Answer) -> Record:
        page, conduct = self._page(answer), self._conduct(answer.crawl)
        visit = _visit(answer, self._chain(answer))
        decision = decide_status(answer.status, conditional=True, location=False)
        if decision.action is Action.CONFIRM:
            return page_processor.confirmed(page, visit, conduct, "")
        if decision.action is not Action.STORE:
            reason = decision.reason
            if reason == "redirect without location" and page.header("location"):
                reason = "redirect to no web address"
            return page_processor.failed(visit, conduct, "", reason, page, answer.at)
        try:
            return page_processor.read_page(page, visit, canonical(answer.url), conduct, "")[0]
        except Exception as error:
            # As a worker has it: whatever a page does to us, it does to itself alone.
            return page_processor.failed(visit, conduct, "", f"reading: {type(error).__name__}", page, answer.at)

    def _page(self, answer: _Answer) -> Response:
        with record_at(self._files[answer.file], answer.place) as found:
            status, told, version = _head(found)
            headers = found.headers
            body = found.block.rest() if headers.get("warc-type") != "revisit" else b""
            if body and not {"content-encoding", "transfer-encoding"}.isdisjoint(dict(told)):
                raise found.block.broken("has a body as it came over the wire: only archives of Shoal's can be read")
        if answer.body != answer.id:
            body = self._body(answer)
        protocol = headers.get("warc-protocol", "")
        return Response(
            url=answer.url, status=status, headers=tuple(told), body=body, address=headers.get("warc-ip-address", ""),
            http_version=protocol.removeprefix("h") if protocol in ("h2", "h3") else version,
            bytes_received=answer.received, started_at=answer.at, timings=Timings(total=answer.seconds),
        )  # fmt: skip

    def _body(self, answer: _Answer) -> bytes:
        """That of the answer which a revisit found again."""
        kept = self.answer("id = ?", answer.body)
        if kept is None:
            raise SinkRefused(
                f"The archive has {answer.url[:200]} as a page that did not change, and not the answer from before; "
                "put the file that has it back."
            )
        with record_at(self._files[kept.file], kept.place) as found:
            _head(found)
            return found.block.rest()

    def _chain(self, answer: _Answer) -> list[tuple[str, int]]:
        """The redirects that led to it, as far as they were followed before."""
        chain: list[tuple[str, int]] = []
        seen, there = {answer.url}, answer
        while len(chain) < MAX_HOPS:
            before = self.answer(
                "crawl = ? AND leads = ? AND leads <> '' AND at <= ? ORDER BY at LIMIT 1",
                there.crawl, there.url, there.at,
            )  # fmt: skip
            if before is None or before.url in seen:
                break
            seen.add(before.url)
            chain.insert(0, (before.url, before.status))
            there = before
        return chain

    def _conduct(self, crawl: str) -> CrawlContext:
        """A crawl that goes nowhere: its pages are read, and their links counted."""
        if crawl not in self._conducts:
            crawled = Crawl(crawl, crawl, State.FINISHED, 0, Limits(max_depth=0), 0.0)
            self._conducts[crawl] = CrawlContext(crawled, {}, {})
        return self._conducts[crawl]


def _visit(answer: _Answer, chain: list[tuple[str, int]]) -> Visit:
    return Visit(url=answer.url, found="redirect" if chain else "link", meta=VisitMeta(chain=tuple(chain)).pack())


def _answer(found: Found) -> tuple[int, dict[str, str]]:
    status, told, _ = _head(found)
    # Of several the first, as everywhere.
    return status, dict(reversed(told))


def _head(found: Found) -> tuple[int, list[tuple[str, str]], str]:
    """Status, headers and version of HTTP that an answer has; of what is none, those that stand for it."""
    if found.headers.get("warc-type") == "resource":
        return 200, [("content-type", found.headers.get("content-type", ""))], ""
    line, *lines = found.block.head().split("\r\n")
    version, _, status = line.partition(" ")
    if not version.startswith("HTTP/") or not status[:3].isdecimal():
        raise found.block.broken("is no answer of HTTP")
    return int(status[:3]), fields(lines), version.removeprefix("HTTP/")


def _whole(told: dict[str, Any], name: str) -> int:
    text = str(told.get(name, ""))
    return int(text) if text.isdecimal() and len(text) < 16 else 0


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
