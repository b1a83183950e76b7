"""Rows of pages and items as the SQL text of one INSERT, cut to the longest packet that a server accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_type_hints

import msgspec

from shoal.model.record import Item, Record
from shoal.sinks.columns import COLUMNS, ColumnKind, Row, data_text, moment, plain, spread
from shoal.sinks.sql.server import item_id

_ERROR, _REDIRECTS, _FETCHED_AT = (COLUMNS.index(name) for name in ("error", "redirects", "fetched_at"))
_HINTS = get_type_hints(Record)
_CUTTABLE = tuple(name for name in COLUMNS if _HINTS[name] is str and name not in ("crawl", "url"))


def insert_around(table: str, names: Iterable[str], changes: str) -> tuple[bytes, bytes]:
    """The text of a statement before and after its rows."""
    columns = ", ".join(f"`{name}`" for name in names)
    head = f"INSERT INTO `{table}` ({columns}) VALUES "  # noqa: S608 - names of columns and a checked table
    return head.encode(), f" ON DUPLICATE KEY UPDATE {changes}".encode()


def page_row(id_: bytes, record: Record, room: int) -> bytes:
    """A row of at most `room` bytes."""
    values: list[object] = list(msgspec.structs.astuple(record))
    values[_ERROR] = record.error or None
    values[_REDIRECTS] = msgspec.json.encode(record.redirects).decode() if record.redirects else "[]"
    values[_FETCHED_AT] = _moment(record)
    row = f"(X'{id_.hex()}',{','.join(map(_literal, values))})".encode()
    if len(row) <= room:
        return row
    # The server accepts no larger packet. A page with a part of its text is better than a crawl that stops.
    longest = max(_CUTTABLE, key=lambda name: len(getattr(record, name)))
    text: str = getattr(record, longest)
    return page_row(
        id_, msgspec.structs.replace(record, **{longest: text[: len(text) * room // len(row) * 9 // 10]}), room
    )


def item_row(item: Item, columns: Mapping[str, ColumnKind | None] | None, room: int) -> bytes:
    """A row of at most `room` bytes. `columns` are the fields of a spider's own table."""
    row = _item_literal(item, item.data, columns)
    if len(row) > room:
        # Like pages: an item with shorter texts, at last with none, is better than a crawl that stops.
        for longest in (room // 4, room // 64, 1000):
            row = _item_literal(item, plain(item.data, longest=longest), columns)
            if len(row) <= room:
                return row
        row = _item_literal(item, {}, columns)
    return row


def _item_literal(item: Item, data: dict[str, Any], columns: Mapping[str, ColumnKind | None] | None) -> bytes:
    values, left = ({}, data) if columns is None else spread(data, columns)
    fixed = (item.crawl, item.url, item.spider, item.number, _moment(item), data_text(left))
    fields = (values.get(name) for name, kind in (columns or {}).items() if kind is not None)
    return f"(X'{item_id(item).hex()}',{','.join(map(_literal, (*fixed, *fields)))})".encode()


def item_key(item: Item) -> tuple[str, int]:
    """The id in hex, as the server's HEX() writes it, and the number."""
    return item_id(item).hex().upper(), item.number


def _moment(record: Row) -> str | None:
    at = moment(record)
    return at and at.replace("T", " ").removesuffix("Z")


def _literal(value: object) -> str:
    """A value as SQL. The session is UTF-8 with backslash escapes: only the quote and the backslash need one."""
    if type(value) is str:
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    return "NULL" if value is None else repr(value)


def packets(rows: Sequence[bytes], most: int) -> Iterator[Sequence[bytes]]:
    """The rows in groups that fit into one packet of the server."""
    start = length = 0
    for at, row in enumerate(rows):
        if at > start and length + len(row) > most:
            yield rows[start:at]
            start = at
            length = 0
        length += len(row) + 1
    if start < len(rows):
        yield rows[start:]
