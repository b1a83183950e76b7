"""Rows with chosen columns, for people and spreadsheets: the fields of items, or columns of pages, as CSV or JSON.

Owns how a value becomes a cell or a JSON value. Such a file does not record the crawl of a row, so Shoal cannot read
it back; the formats of outputs are in sinks/.
"""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Sequence
from typing import Any

from shoal.errors import InvalidInput
from shoal.model.record import Item
from shoal.sinks.columns import COLUMNS, ITEM_COLUMNS, Row, data_text, moment
from shoal.sinks.contract import LineFormat
from shoal.sinks.files.csv import escaped
from shoal.sinks.files.jsonl import on_one_line


def flat_format(kind: str, fields: Sequence[str], *, own: bool = False) -> LineFormat:
    """The format of rows that have these columns in this order. `own`: they are fields of items, never columns."""
    if kind == "csv":
        return LineFormat(_csv_line(fields), lambda record: _csv_line(_values(record, fields, own=own)))

    def encode(record: Row) -> bytes:
        return data_text(dict(zip(fields, _values(record, fields, own=own), strict=True))).encode()

    return json_array(encode) if kind == "json" else LineFormat(b"", lambda record: on_one_line(encode(record)))


def json_array(encode: Any) -> LineFormat:
    """The format of a JSON array. `encode` returns a record as a JSON object."""
    return LineFormat(b"[\n", encode, between=b",\n", tail=b"\n]\n")


def check_page_fields(fields: Sequence[str]) -> None:
    """InvalidInput if pages do not have one of these columns."""
    for field in fields:
        if field not in COLUMNS:
            near = difflib.get_close_matches(field, COLUMNS, 1)
            hint = f"; did you mean {near[0]}?" if near else f": {', '.join(COLUMNS)}."
            raise InvalidInput(f"--fields {field}: pages have no such column{hint}")


def _values(record: Row, fields: Sequence[str], *, own: bool) -> list[Any]:
    return [_value(record, field, own=own) for field in fields]


def _value(record: Row, field: str, *, own: bool) -> Any:
    """A field of an item, else a column; None if there is none."""
    if isinstance(record, Item) and (own or field in record.data or field not in ITEM_COLUMNS):
        return record.data.get(field)
    return moment(record) if field == "fetched_at" else getattr(record, field)


def _csv_line(values: Sequence[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow([_cell(value) for value in values])
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return escaped(value)
    return "" if value is None else data_text(value)
