"""Tables of `?table_per_spider`, read: which they are, and the items that their rows were.

A column's name is that of its field as far as it can be told: a field of another spelling comes back under the
column's, and one that was null does not come back.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from shoal.errors import SinkRefused
from shoal.sinks.columns import ITEM_COLUMNS, ColumnKind, column_of
from shoal.sinks.reader import Values
from shoal.sinks.sql.server import NAME_LENGTH, ServerAddress, ServerTable

_FIXED = ITEM_COLUMNS[:-1]
# What the names of our tables are made of.
_NAME = re.compile(r"[A-Za-z0-9_.]+")
# Fields of such a name have the column item_NAME.
_RENAMED = {column_of(name): name for name in ("id", "extra", *_FIXED)}


def beginning_of(address: ServerAddress) -> tuple[str, str]:
    """The schema, '' for the one in use, and how the names of all spiders' tables begin."""
    schema, _, name = address.items("").rpartition(".")
    # A name that is too long ends in its hash.
    return schema, name[: NAME_LENGTH - 9]


async def tables_of(
    sink: Any, module: Any, connection: Any, names: Sequence[str]
) -> AsyncIterator[tuple[str, Mapping[str, ColumnKind]]]:
    """Those of the tables that are of spiders, with the kinds of their fields."""
    some = False
    for name in filter(_NAME.fullmatch, names):
        try:
            columns = await sink._columns(connection, ServerTable(name, module.SPIDER_DEFINITIONS, ("id", "number")))
        except SinkRefused:
            continue
        if columns.keys() >= module.SPIDER_DEFINITIONS.keys():
            some = True
            yield name, {one: module._KINDS[told] for one, told in columns.items() if told in module._KINDS}
    if not some:
        raise sink._refused(f"has no table {beginning_of(sink._address)[1]}... of Shoal's; name the output of a crawl")


def items_of(sink: Any, table: str, kinds: Mapping[str, ColumnKind], rows: Iterable[Values]) -> list[Values]:
    """Items, without the rows of another output whose tables have such names, too."""
    return [_item(row, kinds) for row in rows if sink._address.items(row["spider"]) == table]


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
