"""Items as flat rows, for files that people open: the item's own fields, then where the item came from.

    title,price,_crawl,_url,_spider,_number,_fetched_at,_more
    Atlas,9.5,books,https://books.example/1,Books,1,2026-11-15T23:25:12.658Z,

Owns the names of columns in such files, and the way back to items. In CSV, the first item of a file decides which
fields have columns; further fields go to `_more`, as JSON: no column ever changes, and nothing is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from shoal.model.record import Item
from shoal.sinks.columns import ITEM_COLUMNS, MOST_COLUMNS, data_text, moment

# The columns of an item beside its data, each after an underscore.
ORIGIN = tuple(f"_{name}" for name in ITEM_COLUMNS if name != "data")
MORE = "_more"
# A field with the name of one of these columns gets one more underscore.
_TAKEN = re.compile(rf"_+(?:{'|'.join(name[1:] for name in (*ORIGIN, MORE))})")
# The longest name of a column; a longer one is probably a value.
_LONGEST_NAME = 200
# The key of a flat row.
KEY = "_crawl"


def column(field: str) -> str:
    """The column of a field."""
    return f"_{field}" if _TAKEN.fullmatch(field) else field


def field_of(name: str) -> str:
    """The field of a column that is not one of Shoal's own."""
    return name[1:] if name.startswith("__") and _TAKEN.fullmatch(name) else name


def flat(item: Item) -> dict[str, Any]:
    """An item as one flat row."""
    row = {column(str(name)): value for name, value in item.data.items()}
    origin = (item.crawl, item.url, item.spider, item.number, moment(item))
    return row | dict(zip(ORIGIN, origin, strict=True))


def columns_of(fields: Iterable[str]) -> tuple[str, ...]:
    """The columns of a CSV file of items with these fields. Names that cannot be those of columns are left out."""
    names = dict.fromkeys(column(name) for name in fields if len(name) <= _LONGEST_NAME and name.isprintable())
    return (*list(names)[:MOST_COLUMNS], *ORIGIN, MORE)


def fields_of(items: Iterable[Item]) -> list[str]:
    """The fields of items, in the order of their first appearance."""
    return list(dict.fromkeys(str(name) for item in items for name in item.data))


def cells(item: Item, columns: Sequence[str]) -> list[Any]:
    """The values of an item in the columns of a file; values without a column are JSON in the last one."""
    row = flat(item)
    more = {name: value for name, value in row.items() if name not in columns and value is not None}
    if more:
        row[MORE] = more
    return [row.get(name) for name in columns]


def cell_text(value: Any) -> str:
    """A value as the text of a cell."""
    if isinstance(value, str):
        return value
    return "" if value is None else data_text(value)


def item_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of an item, from a flat row. An invalid `_more` is kept as text."""
    values: dict[str, Any] = {name[1:]: row[name] for name in ORIGIN if name in row}
    data = {field_of(name): value for name, value in row.items() if name not in ORIGIN and name != MORE}
    more = row.get(MORE)
    if isinstance(more, str) and more:
        try:
            more = msgspec.json.decode(more)
        except msgspec.DecodeError:
            data[MORE] = more
    if isinstance(more, dict):
        data |= {field_of(name): value for name, value in more.items()}
    return values | {"data": data}
