"""Records of a crawl: browse, search, and one record with all its fields.

Read from the first output that this server can read, in the order of that output. A search reads a few thousand
records at a time, and shows how far it got: outputs differ in what they can search themselves.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from shoal.api.dashboard.components import (
    duration,
    empty,
    facts,
    field,
    foreign,
    more,
    number,
    outside,
    path,
    size,
    table,
    timestamp,
)
from shoal.api.dashboard.html import E, Node
from shoal.api.dashboard.view import DashboardPage, View
from shoal.api.pagination import make_cursor, parse_cursor
from shoal.api.request import RequestContext
from shoal.errors import InvalidInput, SinkRefused, SinkUnavailable, UnknownCrawl
from shoal.model.crawl import Crawl
from shoal.model.record import Record
from shoal.sinks.reader import Cursor, page_with_cursors

_SECTION = "Crawls"
_SHOWN, _SOME = 50, 8
_MAX_READ, _SECONDS = 5000, 2.0
_BATCH = 500
# Characters of a record's text that are shown.
_PREVIEW = 4000
_COLUMNS = ("crawl", "url", "status", "error", "title", "content_type", "bytes", "fetched_at")
_Position = tuple[Annotated[int, Meta(ge=0)], list[Any] | None]


class Search(NamedTuple):
    """The conditions for records; '' matches everything."""

    prefix: str = ""
    status: str = ""
    error: str = ""
    text: str = ""

    def matches(self, record: Record) -> bool:
        return (
            record.url.startswith(self.prefix)
            and (not self.status or str(record.status).startswith(self.status))
            and self.error.lower() in record.error.lower()
            and (not self.text or self.text.lower() in f"{record.title}\n{record.description}\n{record.text}".lower())
        )

    @property
    def columns(self) -> tuple[str, ...]:
        return (*_COLUMNS, *(("description", "text") if self.text else ()))


class Matches(NamedTuple):
    # Each record with the position before it, from which it can be read again.
    records: list[tuple[_Position, Record]]
    following: _Position | None
    records_read: int


async def records_page(view: View) -> DashboardPage:
    crawl = await view.crawl()
    search = Search(*(view.text(name).strip() for name in Search._fields))
    of = ("dashboard records", crawl.id, *search)
    position = view.cursor(_Position, *of)
    try:
        matches, trouble = await find(view, crawl, search, position), ""
    except (InvalidInput, SinkRefused, SinkUnavailable) as error:
        if position is not None:
            raise
        # An output is created with its first record.
        matches, trouble = Matches([], None, 0), str(error)
    query = search._asdict()
    following = (
        path("crawls", crawl.id, "records", **query, cursor=make_cursor(matches.following, *of))
        if matches.following
        else None
    )
    searched = any(search)
    content: list[Node] = [
        E.h1(E.a(crawl.id, href=path("crawls", crawl.id)), " · Records"),
        E.form(
            field("URL starts with", "prefix", search.prefix, maxlength=1000, placeholder="https://example.org/"),
            field("Status starts with", "status", search.status, maxlength=3, pattern="[0-9]*", placeholder="404"),
            field("Error contains", "error", search.error, maxlength=200),
            field("Title or text contains", "text", search.text, maxlength=200),
            E.button("Search", type="submit"), action=path("crawls", crawl.id, "records"), method="get", class_="row",
        ),
        _table(crawl, matches) if matches.records else empty(_nothing(searched, following, trouble)),
        E.p(f"{number(matches.records_read)} records were searched.", class_="quiet") if searched else None,
        more(following, "Search further" if searched else "Next page"),
    ]  # fmt: skip
    return DashboardPage(f"Records of {crawl.id}", content, _SECTION)


async def first_records(view: View, crawl: Crawl) -> Node:
    """A few records for the page of a crawl. Not for its live updates: an output may be slow."""
    if view.for_updates:
        return None
    link = E.p(E.a("Browse and search the records", href=path("crawls", crawl.id, "records")))
    try:
        matches = await find(view, crawl, Search(), None, _SOME)
    except (InvalidInput, SinkRefused, SinkUnavailable) as error:
        return E.p(f"No record yet. {error}", class_="quiet")
    order = E.p("The first records, in the order of the output.", class_="quiet")
    return [order, _table(crawl, matches), link] if matches.records else E.p("No record yet.", class_="quiet")


def _table(crawl: Crawl, matches: Matches) -> Node:
    rows: list[list[Node]] = [
        [
            E.a(foreign(record.url), href=path("crawls", crawl.id, "record", at=_at(position, crawl))),
            str(record.status or "–"), foreign(record.error or record.title, 100), foreign(record.content_type, 40),
            size(record.bytes), timestamp(record.fetched_at),
        ]
        for position, record in matches.records
    ]  # fmt: skip
    return table("Records", (">URL", "#Status", ">Title or error", "=Type", "#Size", "=Fetched"), rows)


def _nothing(searched: bool, following: str | None, trouble: str) -> str:
    if trouble:
        return f"No record yet. {trouble}"
    if following:
        return "No match so far."
    return "No record matches." if searched else "No record yet."


async def find(
    context: RequestContext, crawl: Crawl, search: Search, start: _Position | None, most: int = _SHOWN
) -> Matches:
    """Return matching records after a position. It stops at `most` matches, or at the limit of records or time."""
    first, after = start or (0, None)
    deadline = time.monotonic() + _SECONDS
    matching: list[tuple[_Position, Record]] = []
    records_read = 0
    batch = _BATCH if any(search) else most
    while True:
        first, rows, last = await _read(context, crawl, first, after, batch, search.columns)
        before: Sequence[Any] | None = after
        for cursor, record in rows:
            records_read += 1
            if search.matches(record):
                matching.append(((first, list(before) if before is not None else None), record))
            before = cursor
            if len(matching) == most:
                more_left = last is not None or cursor != rows[-1][0]
                return Matches(matching, (first, list(cursor)) if more_left else None, records_read)
        if last is None:
            return Matches(matching, None, records_read)
        after = list(last)
        if records_read >= _MAX_READ or time.monotonic() > deadline:
            return Matches(matching, (first, after), records_read)


async def _read(
    context: RequestContext, crawl: Crawl, first: int, after: Sequence[Any] | None, count: int, columns: Sequence[str]
) -> tuple[int, list[tuple[Cursor, Record]], Cursor | None]:
    """Records of the first output that can be read, and its number."""
    refused: Exception = InvalidInput(f"Crawl {crawl.id!r} has no output, so it has no records.")
    for index, output in enumerate(crawl.spec.get("outputs", ())):
        if index < first:
            continue
        uri = context.server.settings.outputs.get(output, output)
        try:
            rows, last = await page_with_cursors(uri, crawl.id, count, after=after, columns=columns)
        except UnknownCrawl:
            return index, [], None
        except (SinkRefused, InvalidInput) as error:
            if after is not None:
                raise
            refused = error
            continue
        return index, [(cursor, row) for cursor, row in rows if isinstance(row, Record)], last
    raise refused


async def record_page(view: View) -> DashboardPage:
    crawl = await view.crawl()
    position = _position(view, crawl)
    if position is None:
        raise InvalidInput("Choose a record from the list of records.")
    _, rows, _ = await _read(view, crawl, position[0], position[1], 1, ())
    if not rows:
        raise InvalidInput("The output no longer has this record.")
    record = rows[0][1]
    raw = msgspec.json.format(
        msgspec.json.encode(msgspec.structs.replace(record, text=record.text[:_PREVIEW])), indent=2
    )
    chain: Node = None
    if record.redirects:
        hops: list[list[Node]] = [[outside(url), str(status or "refresh")] for url, status in record.redirects]
        chain = [E.h2("Redirects"), table("Redirects", (">URL", "#Status"), hops)]
    content: list[Node] = [
        E.h1(E.a(crawl.id, href=path("crawls", crawl.id)), " · Record"),
        facts([
            ("URL", outside(record.url, 1000)),
            ("Title", foreign(record.title, 500) if record.title else "–"),
            ("Status", [str(record.status or "–"), f" {record.error}" if record.error else ""]),
            ("Fetched", timestamp(record.fetched_at)),
            ("Response", [duration(record.response_seconds), f" from {record.address}" if record.address else "",
                          f", HTTP/{record.http_version}" if record.http_version else ""]),
            ("Content", f"{record.content_type} {record.charset}".strip() or "–"),
            ("Size", f"{size(record.bytes)}, {size(record.bytes_received)} received"),
            ("Found", f"as {record.found}, at depth {record.depth}, attempt {record.attempt}"),
            ("Headers kept", ", ".join(filter(None, [f"ETag {record.etag}" if record.etag else "",
             f"Last-Modified {record.last_modified}" if record.last_modified else ""])) or "–"),
            ("Worker", record.worker or "–"),
            ("File", foreign(record.file) if record.file else "–"),
        ]),
        chain,
        E.h2("Text"),
        E.pre(record.text[:_PREVIEW] + ("…" if len(record.text) > _PREVIEW else ""), tabindex=0) if record.text
        else E.p("No text.", class_="quiet"),
        E.h2("Record as JSON"),
        E.pre(raw.decode(errors="replace"), tabindex=0),
    ]  # fmt: skip
    return DashboardPage("Record", content, _SECTION)


def _at(position: _Position, crawl: Crawl) -> str:
    return make_cursor(position, "record", crawl.id)


def _position(view: View, crawl: Crawl) -> _Position | None:
    position: _Position | None = parse_cursor(view.request.query_params.get("at", ""), _Position, "record", crawl.id)
    return position
