"""Records as columns: one column per field, with the same names and values in every technology.

A page is a row of COLUMNS. An item is a row of ITEM_COLUMNS, whose `data` is a JSON object; `data_text` replaces values
that JSON cannot carry, so that none of them costs a row.

With a table per spider (`?table_per_spider`), the fields of items are columns too. A column has the type of the first
value of its field, and keeps it. A value without a column, or of another type, goes to the column `extra` under the
name of its field: nothing is lost, and no column ever changes.
"""

from __future__ import annotations

import datetime
import enum
import functools
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from shoal.model.record import Item, Record, RecordKey
from shoal.sinks.contract import Stored

COLUMNS: tuple[str, ...] = Record.__struct_fields__
ITEM_COLUMNS: tuple[str, ...] = Item.__struct_fields__
REPLACEMENT = "\ufffd"
# Values nested deeper than this are null: C and Python fail at about a thousand levels.
DEEPEST = 200
# The columns of a page that a 304 response changes; it confirms all others. The first two are always replaced, the
# other two only if the response has them.
NOT_MODIFIED_REPLACES = ("fetched_at", "visits")
NOT_MODIFIED_UPDATES = ("etag", "last_modified")

Row = Record | Item
One = TypeVar("One", bound=Stored)

_ENCODER = msgspec.json.Encoder()


def moment(record: Row) -> str | None:
    """The fetch time of a record as ISO 8601 in UTC with milliseconds, which sorts as text; None if not fetched."""
    if not record.fetched_at:
        return None
    text = datetime.datetime.fromtimestamp(record.fetched_at, datetime.UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z"


def digest(*key: str) -> bytes:
    """A key as 16 bytes, for databases whose indexes cannot hold a long URL."""
    return hashlib.sha256("\0".join(key).encode()).digest()[:16]


def last_of_each(records: Sequence[One]) -> Sequence[One]:
    """One record per key: the last one. A 304 only updates the record before it."""
    # A page and its capture have the same key.
    if len({(type(record), record.key) for record in records}) == len(records):
        return records
    kept: dict[tuple[type, RecordKey], One] = {}
    for record in records:
        key = type(record), record.key
        before = kept.get(key)
        if isinstance(record, Record) and isinstance(before, Record) and record.status == 304:
            record = cast(One, confirmed(before, record))
        kept[key] = record
    return list(kept.values())


def is_confirmation(record: Stored) -> bool:
    """Whether a record only says that its page has not changed (304).

    Where records are appended, it is left out: it has no text, and the last record of a page is the one that counts.
    """
    return isinstance(record, Record) and record.status == 304


def confirmed(page: Record, response: Record) -> Record:
    """A page after a 304 response."""
    changes = {name: getattr(response, name) for name in NOT_MODIFIED_REPLACES}
    changes |= {name: getattr(response, name) or getattr(page, name) for name in NOT_MODIFIED_UPDATES}
    return msgspec.structs.replace(page, **changes)


def confirmed_sql(old: Callable[[str], str], new: Callable[[str], str]) -> dict[str, str]:
    """The same in SQL: the new values of the columns that a 304 changes.

    `old` and `new` give the expressions of a column in the stored row, and in the row that is inserted.
    """
    changes = {name: new(name) for name in NOT_MODIFIED_REPLACES}
    return changes | {name: f"COALESCE(NULLIF({new(name)}, ''), {old(name)})" for name in NOT_MODIFIED_UPDATES}


def visited(records: Sequence[Stored]) -> list[tuple[str, str, str]]:
    """Crawl, URL and spider of the pages whose items in this batch replace all earlier items."""
    return [
        (record.crawl, record.url, record.spider)
        for record in records
        if isinstance(record, Record) and record.spider and record.status != 304
    ]


def data_text(data: Any) -> str:
    """A value as JSON. NaN and infinity are null, half a surrogate pair is U+FFFD, an unknown type is its str()."""
    try:
        return _ENCODER.encode(data).decode()
    except (ValueError, TypeError, RecursionError):
        return json.dumps(plain(data), ensure_ascii=False)


def plain(value: Any, *, nul: str = "\0", longest: int | None = None, depth: int = 0) -> Any:
    """The value as any JSON parser accepts it, with texts in valid UTF-8, cut at `longest` characters."""

    def inner(value: Any) -> Any:
        return plain(value, nul=nul, longest=longest, depth=depth + 1)

    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        # Python does not convert integers of more than 4300 digits to text.
        return value if value.bit_length() < 14_000 else hex(value)
    if isinstance(value, dict | list | tuple | set | frozenset):
        if depth >= DEEPEST:
            return None
        if isinstance(value, dict):
            return {inner(str(name)): inner(nested) for name, nested in value.items()}
        return [inner(nested) for nested in value]
    return whole(str(value))[:longest].replace("\0", nul)


def encodable(record: One, *, nul: str = "\0") -> One:
    """The record in valid UTF-8: halves of a surrogate pair are joined, a lone half becomes U+FFFD.

    This is rare, so it is done only for batches that failed to encode. `nul` replaces NUL for databases without it.
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


# A row of InnoDB has room for about 190 texts. An item with more fields is rather a dictionary with arbitrary keys.
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
    """The column of a field: lower-case letters, digits and _. A reserved name gets a prefix, e.g. item_url."""
    name = _NO_NAME.sub("_", field.lower()).encode()[:_NAME_BYTES].decode(errors="ignore") or "_"
    return f"item_{name}" if name in _TAKEN else name


def kind_of(value: Any) -> ColumnKind | None:
    """The type of column that returns this value unchanged; None if there is none."""
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
    """The columns that these items need."""
    columns: dict[str, ColumnKind] = {}
    for item in items:
        for field, value in item.data.items():
            kind = kind_of(value)
            if kind is not None:
                columns.setdefault(column_of(str(field)), kind)
    return columns


def spread(data: Mapping[str, Any], columns: Mapping[str, ColumnKind | None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values by column, with JSON as text, and the values that are left for `extra`."""
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
