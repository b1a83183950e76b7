"""The columns of pages and items in SQL: which field has which type. A technology names the types."""

from __future__ import annotations

from typing import NamedTuple, get_type_hints

from shoal.model.record import Record
from shoal.sinks.columns import COLUMNS


class ColumnTypes(NamedTuple):
    """The types of one technology, each with its constraint and default.

    key         crawl, URL and spider
    text        str, '' by default
    whole       int, 0 by default
    real        float, 0 by default
    flag        bool, false by default
    error       text or NULL
    list        a JSON array, empty by default
    fetched_at  a time or NULL
    number      the number of an item among the items of its page
    data        a JSON object, empty by default
    """

    key: str
    text: str
    whole: str
    real: str
    flag: str
    error: str
    list: str
    fetched_at: str
    number: str
    data: str


def page_columns(types: ColumnTypes) -> dict[str, str]:
    """The definition of each column of a page."""
    by_name = {
        "crawl": types.key, "url": types.key, "error": types.error, "redirects": types.list,
        "fetched_at": types.fetched_at,
    }  # fmt: skip
    by_type = {str: types.text, int: types.whole, float: types.real, bool: types.flag}
    hints = get_type_hints(Record)
    return {name: by_name.get(name) or by_type[hints[name]] for name in COLUMNS}


def item_columns(types: ColumnTypes) -> dict[str, str]:
    """The definition of each column of an item."""
    return {
        "crawl": types.key, "url": types.key, "spider": types.key, "number": types.number,
        "fetched_at": types.fetched_at, "data": types.data,
    }  # fmt: skip


def spider_columns(items: dict[str, str]) -> dict[str, str]:
    """The definitions of a spider's own table, from those of the table of all items."""
    return {name if name != "data" else "extra": type_ for name, type_ in items.items()}
