"""Items as the rows of a Parquet file: a column for each field, made when a part becomes a file.

A part has items as they were written, with their data as JSON. A column has the type of the first value of its field in
the part; values of other types are in `_more`, as JSON. Numbers are floating-point, so that all files of an output have
the same type for a field. Owns the columns of such files; flat_items.py owns their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from shoal.sinks.columns import ITEM_COLUMNS, ColumnKind, data_text, kind_of
from shoal.sinks.driver import lazy_import
from shoal.sinks.files.flat_items import MORE, ORIGIN, column, columns_of

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy_import("pyarrow")

# Marks a column whose text is JSON, for reading it back.
_JSON = {b"shoal": b"json"}
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def is_json(field: pa.Field) -> bool:
    """Whether the text of a column is JSON."""
    return bool(field.metadata) and field.metadata.get(b"shoal") == b"json"


def flattened(groups: Callable[[], Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """The tables of a part with a column for each field. `groups` returns its tables; they are read twice."""
    kinds: dict[str, ColumnKind] = {}
    for table in groups():
        for text in table.column(ITEM_COLUMNS[-1]).to_pylist():
            for name, value in _decode(text).items():
                if (kind := kind_of(value)) is not None:
                    kinds.setdefault(name, kind)
    allowed = {*columns_of(kinds)}
    kinds = {name: kind for name, kind in kinds.items() if column(name) in allowed}
    schema: pa.Schema | None = None
    for table in groups():
        schema = schema or _schema(kinds, table.schema)
        yield pa.table(_columns(table, kinds, schema), schema=schema)


def _schema(kinds: dict[str, ColumnKind], of_part: pa.Schema) -> pa.Schema:
    types = {
        ColumnKind.TEXT: pa.string(), ColumnKind.NUMBER: pa.float64(), ColumnKind.BOOLEAN: pa.bool_(),
        ColumnKind.JSON: pa.string(),
    }  # fmt: skip
    fields = [
        pa.field(column(name), types[kind], metadata=_JSON if kind is ColumnKind.JSON else None)
        for name, kind in kinds.items()
    ]
    origin = [of_part.field(name[1:]).with_name(name) for name in ORIGIN]
    return pa.schema([*fields, *origin, pa.field(MORE, pa.string(), metadata=_JSON)])


def _columns(table: pa.Table, kinds: dict[str, ColumnKind], schema: pa.Schema) -> list[Any]:
    values: dict[str, list[Any]] = {name: [] for name in kinds}
    more: list[str | None] = []
    for text in table.column(ITEM_COLUMNS[-1]).to_pylist():
        data = _decode(text)
        unmatched = {}
        for name, value in data.items():
            if value is not None and (name not in kinds or kind_of(value) is not kinds[name]):
                unmatched[column(name)] = value
        for name, kind in kinds.items():
            value = None if column(name) in unmatched else data.get(name)
            if value is not None and kind is not ColumnKind.TEXT and kind is not ColumnKind.BOOLEAN:
                value = float(value) if kind is ColumnKind.NUMBER else data_text(value)
            values[name].append(value)
        more.append(data_text(unmatched) if unmatched else None)
    origin = [table.column(name[1:]) for name in ORIGIN]
    own = [pa.array(column_values, schema.field(index).type) for index, column_values in enumerate(values.values())]
    return [*own, *origin, pa.array(more, pa.string())]
