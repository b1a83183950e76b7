"""The fields of a spider's items as columns, for databases with a table per spider (`?table_per_spider`).

A column has the kind of the first value that came of its field, and keeps it. What has no column, or does not fit into
it, is in the column `extra` under the field's own name: nothing is lost, and no column ever changes.
"""

from __future__ import annotations

import enum
import functools
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from shoal.model.record import Item
from shoal.sinks.row import ITEM_COLUMNS, data_text

# A row of InnoDB has room for some 190 texts. An item with more fields is a dictionary with names of its own.
MOST_COLUMNS = 150
# PostgreSQL's names have at most 63 bytes.
_NAME_BYTES = 58
_EXACT = 1 << 53
_TAKEN = {"id", "extra", *ITEM_COLUMNS[:-1]}
# Names in MySQL have no characters beyond the first plane.
_NO_NAME = re.compile(r"[\W\U00010000-\U0010ffff]+")


class Kind(enum.Enum):
    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    JSON = "json"


@functools.lru_cache(4096)
def column_of(field: str) -> str:
    """Letters in lower case, digits and _. The field `url`, a name that every item's row has, is `item_url`."""
    name = _NO_NAME.sub("_", field.lower()).encode()[:_NAME_BYTES].decode(errors="ignore") or "_"
    return f"item_{name}" if name in _TAKEN else name


def kind_of(value: Any) -> Kind | None:
    """The kind of column that gives this value back as it is; None when there is no such column."""
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, str):
        return Kind.TEXT
    if isinstance(value, int):
        return Kind.NUMBER if abs(value) <= _EXACT else None
    if isinstance(value, float):
        return Kind.NUMBER if math.isfinite(value) else None
    return Kind.JSON if isinstance(value, dict | list | tuple) else None


def kinds(items: Iterable[Item]) -> dict[str, Kind]:
    """The columns that these items would have."""
    found: dict[str, Kind] = {}
    for item in items:
        for field, value in item.data.items():
            kind = kind_of(value)
            if kind is not None:
                found.setdefault(column_of(str(field)), kind)
    return found


def spread(data: Mapping[str, Any], columns: Mapping[str, Kind | None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values by column, JSON as text, and what is left for `extra`."""
    row: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for field, value in data.items():
        column, kind = column_of(str(field)), kind_of(value)
        if kind is not None and columns.get(column) is kind and column not in row:
            row[column] = data_text(value) if kind is Kind.JSON else float(value) if kind is Kind.NUMBER else value
        elif value is not None:
            extra[field] = value
    return row, extra
