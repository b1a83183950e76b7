"""Tables of `?table_per_spider`, read back: which tables they are, and the items of their rows.

A field comes back under the name of its column, which may be spelled differently. A field that was null does not come
back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from shoal.errors import SinkRefused
from shoal.sinks.columns import ITEM_COLUMNS, ColumnKind, column_of
from shoal.sinks.reader import Values
from shoal.sinks.sql.server import NAME_LENGTH, ServerAddress, ServerSink, ServerTable

_FIXED = ITEM_COLUMNS[:-1]
# The characters of our table names.
_NAME = re.compile(r"[A-Za-z0-9_.]+")
# A field of such a name has the column item_NAME.
_RENAMED = {column_of(name): name for name in ("id", "extra", *_FIXED)}


def name_prefix(address: ServerAddress) -> tuple[str, str]:
    """The schema, '' for the current one, and the prefix that the names of all spiders' tables have."""
    schema, _, name = address.items("").rpartition(".")
    # A longer name ends in a hash.
    return schema, name[: NAME_LENGTH - 9]


async def spider_table(
    sink: ServerSink[Any],
    connection: Any,
    name: str,
    definitions: Mapping[str, str],
    kinds: Mapping[Any, ColumnKind],
) -> dict[str, ColumnKind] | None:
    """The types of a table's fields; None if it is not the table of a spider.

    `definitions` are the columns of every spider's table, `kinds` the types of fields by their column types.
    """
    if not _NAME.fullmatch(name):
        return None
    try:
        columns = await sink.columns(connection, ServerTable(name, definitions, ("id", "number")))
    except SinkRefused:
        return None
    if not columns.keys() >= definitions.keys():
        return None
    return {column: kinds[type_] for column, type_ in columns.items() if type_ in kinds}


def no_spider_table(sink: ServerSink[Any]) -> SinkRefused:
    return sink.refused(f"has no table {name_prefix(sink.address)[1]}... of Shoal; name the output of a crawl")


def items_of(
    address: ServerAddress, table: str, kinds: Mapping[str, ColumnKind], rows: Iterable[Values]
) -> list[Values]:
    """The items, without the rows of another output whose tables have the same prefix."""
    return [_item(row, kinds) for row in rows if address.items(row["spider"]) == table]


def _item(row: Values, kinds: Mapping[str, ColumnKind]) -> Values:
    data: dict[str, Any] = msgspec.json.decode(row["extra"] or "{}")
    for column, kind in kinds.items():
        value = row[column]
        if value is None or column in _FIXED or column == "extra":
            continue
        name = _RENAMED.get(column, column)
        while name in data:
            name += "_"
        data[name] = _value(value, kind)
    return {name: row[name] for name in _FIXED} | {"data": data}


def _value(value: Any, kind: ColumnKind) -> Any:
    if kind is ColumnKind.JSON:
        return msgspec.json.decode(value)
    if kind is ColumnKind.BOOLEAN:
        return bool(value)
    # A column has one type for all numbers.
    return int(value) if kind is ColumnKind.NUMBER and value.is_integer() else value
