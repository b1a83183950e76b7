"""Records as outputs show them: one column per field, with the same names and values in every technology.

A page is a row of COLUMNS, an item one of ITEM_COLUMNS, whose `data` is a JSON object. What JSON cannot carry never
costs a row: `data_text` says what becomes of it.

The fields of a spider's items as columns, for databases with a table per spider (`?table_per_spider`).

A column has the kind of the first value that came of its field, and keeps it. What has no column, or does not fit into
it, is in the column `extra` under the field's own name: nothing is lost, and no column ever changes.
"""

from __future__ import annotations

import datetime
import enum
import functools
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from shoal.model.record import Item, Record
from shoal.sinks.contract import Key, Stored

COLUMNS: tuple[str, ...] = Record.__struct_fields__
ITEM_COLUMNS: tuple[str, ...] = Item.__struct_fields__
REPLACEMENT = "\ufffd"
# What is nested deeper than this is null: C and Python give up at about a thousand levels.
DEEPEST = 200

Row = Record | Item
One = TypeVar("One", bound=Stored)

_ENCODER = msgspec.json.Encoder()


def moment(record: Row) -> str | None:
    """When it was fetched, as ISO 8601 in UTC with milliseconds, which sorts as text; None when it never was."""
    if not record.fetched_at:
        return None
    text = datetime.datetime.fromtimestamp(record.fetched_at, datetime.UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def digest(*key: str) -> bytes:
    """A key in 16 bytes, for databases whose indexes cannot hold a long URL."""
    return hashlib.sha256("\0".join(key).encode()).digest()[:16]


def last_of_each(records: Sequence[One]) -> Sequence[One]:
    """One record of each key: the last one, to which a 304 only adds."""
    # A page and its capture have the same key.
    if len({(type(record), record.key) for record in records}) == len(records):
        return records
    kept: dict[tuple[type, Key], One] = {}
    for record in records:
        key = type(record), record.key
        before = kept.get(key)
        if isinstance(record, Record) and isinstance(before, Record) and record.status == 304:
            record = msgspec.structs.replace(
                before,
                fetched_at=record.fetched_at,
                etag=record.etag or before.etag,
                last_modified=record.last_modified or before.last_modified,
            )
        kept[key] = record
    return list(kept.values())


def visited(records: Sequence[Stored]) -> list[tuple[str, str, str]]:
    """Crawl, URL and spider of the pages whose items in a batch are all that they have."""
    return [
        (record.crawl, record.url, record.spider)
        for record in records
        if isinstance(record, Record) and record.spider and record.status != 304
    ]


def data_text(data: Any) -> str:
    """Plain values as JSON. NaN and infinity are null, half a surrogate pair is U+FFFD, a stranger is its text."""
    try:
        return _ENCODER.encode(data).decode()
    except (ValueError, TypeError, RecursionError):
        return json.dumps(plain(data), ensure_ascii=False)


def plain(value: Any, *, nul: str = "\0", longest: int | None = None, depth: int = 0) -> Any:
    """The value as any JSON reader takes it, with texts that UTF-8 can carry, cut at `longest` characters."""

    def inner(value: Any) -> Any:
        return plain(value, nul=nul, longest=longest, depth=depth + 1)

    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        # Python writes no more than 4300 digits.
        return value if value.bit_length() < 14_000 else hex(value)
    if isinstance(value, dict | list | tuple | set | frozenset):
        if depth >= DEEPEST:
            return None
        if isinstance(value, dict):
            return {inner(str(name)): inner(one) for name, one in value.items()}
        return [inner(one) for one in value]
    return whole(str(value))[:longest].replace("\0", nul)


def encodable(record: One, *, nul: str = "\0") -> One:
    """The record as UTF-8 can carry it: halves of a surrogate pair are joined, a lone one becomes U+FFFD.

    Rare, so it is done to batches that failed to encode and to no others. `nul` stands in for NUL where that cannot be.
    """

    def carried(text: str) -> str:
        return whole(text).replace("\0", nul)

    texts = {
        name: carried(value) for name in record.__struct_fields__ if isinstance(value := getattr(record, name), str)
    }
    if isinstance(record, Record):
        hops = tuple((carried(url), status) for url, status in record.redirects)
        return msgspec.structs.replace(record, **texts, redirects=hops)
    if isinstance(record, Item):
        return msgspec.structs.replace(record, **texts, data=plain(record.data, nul=nul))
    return record


def whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# A row of InnoDB has room for some 190 texts. An item with more fields is a dictionary with names of its own.
MOST_COLUMNS = 150
# PostgreSQL's names have at most 63 bytes.
_NAME_BYTES = 58
_EXACT = 1 << 53
_TAKEN = {"id", "extra", *ITEM_COLUMNS[:-1]}
# Names in MySQL have no characters beyond the first plane.
_NO_NAME = re.compile(r"[\W\U00010000-\U0010ffff]+")


class ColumnKind(enum.Enum):
    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    JSON = "json"


@functools.lru_cache(4096)
def column_of(field: str) -> str:
    """Letters in lower case, digits and _. The field `url`, a name that every item's row has, is `item_url`."""
    name = _NO_NAME.sub("_", field.lower()).encode()[:_NAME_BYTES].decode(errors="ignore") or "_"
    return f"item_{name}" if name in _TAKEN else name


def kind_of(value: Any) -> ColumnKind | None:
    """The kind of column that gives this value back as it is; None when there is no such column."""
    if isinstance(value, bool):
        return ColumnKind.BOOLEAN
    if isinstance(value, str):
        return ColumnKind.TEXT
    if isinstance(value, int):
        return ColumnKind.NUMBER if abs(value) <= _EXACT else None
    if isinstance(value, float):
        return ColumnKind.NUMBER if math.isfinite(value) else None
    return ColumnKind.JSON if isinstance(value, dict | list | tuple) else None


def kinds(items: Iterable[Item]) -> dict[str, ColumnKind]:
    """The columns that these items would have."""
    found: dict[str, ColumnKind] = {}
    for item in items:
        for field, value in item.data.items():
            kind = kind_of(value)
            if kind is not None:
                found.setdefault(column_of(str(field)), kind)
    return found


def spread(data: Mapping[str, Any], columns: Mapping[str, ColumnKind | None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values by column, JSON as text, and what is left for `extra`."""
    row: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for field, value in data.items():
        column, kind = column_of(str(field)), kind_of(value)
        if kind is not None and columns.get(column) is kind and column not in row:
            row[column] = (
                data_text(value) if kind is ColumnKind.JSON else float(value) if kind is ColumnKind.NUMBER else value
            )
        elif value is not None:
            extra[field] = value
    return row, extra
