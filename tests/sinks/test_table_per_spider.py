"""`?table_per_spider`: the fields of items as columns, however fields, types and names change."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shoal.model.record import Item
from shoal.sinks import Sink, open_sink
from shoal.sinks.columns import MOST_COLUMNS, ColumnKind, column_of, kind_of, spread
from shoal.sinks.contract import Stored
from shoal.sinks.sql.server import TABLE_NAME, parse_server_uri
from tests.sinks.databases import Database
from tests.sinks.outputs import item, page

FIXED = ["crawl", "url", "spider", "number", "fetched_at"]


@contextlib.asynccontextmanager
async def opened(database: Database, table: str, **more: Any) -> AsyncIterator[Sink]:
    sink = open_sink(f"{database.uri(table=table)}&table_per_spider", worker="worker", spider=True, **more)
    try:
        await sink.open()
        yield sink
    finally:
        await sink.close()


def columns(database: Database, table: str) -> list[str]:
    schema = "'public'" if database.scheme == "postgresql" else "DATABASE()"
    output = database.sql(
        f"SELECT column_name FROM information_schema.columns WHERE table_schema = {schema} "  # noqa: S608
        f"AND table_name = '{table}' ORDER BY ordinal_position"
    )
    return output.decode().splitlines()


def rows(database: Database, table: str) -> list[dict[str, Any]]:
    """Without nulls; JSON as MariaDB shows it, a text, is read."""
    if database.scheme == "postgresql":
        query = f"SELECT encode(convert_to(row_to_json({table})::text, 'UTF8'), 'hex') FROM {table}"  # noqa: S608
        read = [json.loads(bytes.fromhex(line.decode())) for line in database.sql(query).split()]
    else:
        pairs = ", ".join(f"'{name}', `{name}`" for name in columns(database, table) if name != "id")
        lines = database.sql(f"SELECT JSON_OBJECT({pairs}) FROM {table}").split(b"\n")  # noqa: S608
        read = [json.loads(line) for line in lines if line]
        for row in read:
            row["extra"] = json.loads(row["extra"])
            row |= {name: json.loads(row[name]) for name in ("tags", "nested") if isinstance(row.get(name), str)}
    kept = [{name: value for name, value in row.items() if value is not None and name != "id"} for row in read]
    return sorted(kept, key=lambda row: (row["url"], row["spider"], row["number"]))


def fields(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in FIXED}


def visit(number: int, *items: Item, **more: Any) -> list[Stored]:
    return [page(number, spider="books", **more), *items]


async def test_fields_become_columns_of_their_types(database: Database, table: str) -> None:
    data = {"title": "A", "price": 9.5, "count": 3, "new": True, "tags": ["x"], "none": None, "url": "u", "Größe m": 1}
    async with opened(database, table) as sink:
        await sink.write(visit(1, item(1, data=data)), b"")
    (row,) = rows(database, f"{table}_items_books")
    assert (row["crawl"], row["spider"], row["number"]) == ("crawl", "books", 1)
    expected = {"title": "A", "price": 9.5, "count": 3, "new": 1, "tags": ["x"], "item_url": "u", "größe_m": 1}
    assert fields(row) == expected | {"extra": {}}
    assert columns(database, f"{table}_items_books") == [
        "id", *FIXED, "extra", "title", "price", "count", "new", "tags", "item_url", "größe_m",
    ]  # fmt: skip
    assert columns(database, f"{table}_items") == []


async def test_a_new_field_becomes_a_column_and_a_value_of_another_type_goes_to_extra(
    database: Database, table: str
) -> None:
    big = 2**60 + 1
    async with opened(database, table) as sink:
        await sink.write(visit(1, item(1, data={"price": 9.5}), item(1, 2, {"price": "on request"})), b"")
        await sink.write(visit(2, item(2, data={"price": 3, "stock": True}), item(2, 2, {"stock": [1]})), b"")
        await sink.write(visit(3, item(3, data={"price": big, "Price": 1, "stock": None, "nan": float("nan")})), b"")
    stored = [fields(row) for row in rows(database, f"{table}_items_books")]
    assert stored == [
        {"price": 9.5, "extra": {}},
        {"extra": {"price": "on request"}},
        {"price": 3, "stock": True, "extra": {}},
        {"extra": {"stock": [1]}},
        {"price": 1, "extra": {"price": big, "nan": None}},
    ]


async def test_the_items_of_a_revisited_page_are_replaced(database: Database, table: str) -> None:
    async with opened(database, table) as sink:
        await sink.write([*visit(1, item(1, data={"a": 1, "b": 1}), item(1, 2)), item(1, spider="other")], b"")
        await sink.write(visit(1, item(1, data={"a": 2})), b"")
        await sink.write(visit(1, status=304), b"")
    assert [fields(row) for row in rows(database, f"{table}_items_books")] == [{"a": 2, "extra": {}}]
    assert len(rows(database, f"{table}_items_other")) == 1
    async with opened(database, table) as sink:
        await sink.write(visit(1), b"")
    assert rows(database, f"{table}_items_books") == []


async def test_fields_beyond_the_maximum_of_columns_go_to_extra(database: Database, table: str) -> None:
    many = {f"field {number}": "x" * 30 for number in range(MOST_COLUMNS + 100)}
    async with opened(database, table) as sink:
        await sink.write(visit(1, item(1, data=many)), b"")
        for number in range(2, 5):
            await sink.write(visit(number, item(number, data={f"other {number}": 1, "field 1": "y"})), b"")
    first, *others = rows(database, f"{table}_items_books")
    extra = first["extra"]
    assert len(columns(database, f"{table}_items_books")) == len(FIXED) + 2 + MOST_COLUMNS
    assert extra | {name.replace("_", " "): text for name, text in fields(first).items() if name != "extra"} == many
    assert [fields(row) for row in others] == [{"field_1": "y", "extra": {f"other {n}": 1}} for n in range(2, 5)]


HOSTILE = [
    'a"; DROP TABLE x; --', "a`b", "a'b", "", " ", "\0", "\ud800x", "😀", "x" * 300, "é" * 100, "cafe", "café",
    "select", "xmin", "ctid", "id", "extra", "item_url", "url", "1", "%s", "$1", "a\nb", "A", "a", "ß", "ss", "価格",
]  # fmt: skip


async def test_hostile_names_and_texts_lose_nothing(database: Database, table: str) -> None:
    data = {name: number for number, name in enumerate(HOSTILE)}
    texts = ["a\0b", "\ud800", "'); DROP TABLE x; --", "😀", "\\", "\\u0000"]
    async with opened(database, table) as sink:
        await sink.write(visit(1, item(1, data=data), *(item(1, n, {"t": t}) for n, t in enumerate(texts, 2))), b"")
    first, *others = rows(database, f"{table}_items_books")
    kept = fields(first)
    assert sorted([*kept.pop("extra").values(), *kept.values()]) == list(range(len(HOSTILE)))
    assert {"価格", "item_url", "select"} <= kept.keys()
    nul = "�" if database.scheme == "postgresql" else "\0"
    assert [row["t"] for row in others] == [text.replace("\0", nul).replace("\ud800", "�") for text in texts]


async def test_many_workers_add_columns_at_once(database: Database, table: str) -> None:
    chance = random.Random(1)

    async def work(worker: int) -> None:
        async with opened(database, table) as sink:
            for turn in range(8):
                number = worker * 100 + turn
                names = chance.sample(range(40), 10)
                data = {f"f{name}": chance.choice([1, "text", True, [1]]) for name in names}
                written[number] = data
                await sink.write(visit(number, item(number, data=data)), b"")

    written: dict[int, dict[str, Any]] = {}
    await asyncio.gather(*(work(worker) for worker in range(6)))
    stored = rows(database, f"{table}_items_books")
    assert len(stored) == len(written) == 48
    for row in stored:
        kept = fields(row)
        extra = kept.pop("extra")
        number = int(row["url"].rpartition("/")[2])
        assert kept.keys() | extra.keys() == written[number].keys()
        assert not kept.keys() & extra.keys()


async def test_a_column_or_table_dropped_meanwhile_is_created_again(database: Database, table: str) -> None:
    async with opened(database, table) as sink:
        await sink.write(visit(1, item(1, data={"a": 1, "b": 1})), b"")
        database.sql(f"ALTER TABLE {table}_items_books DROP COLUMN a")
        await sink.write(visit(2, item(2, data={"a": 2})), b"")
        assert [fields(row) for row in rows(database, f"{table}_items_books")] == [
            {"b": 1, "extra": {}},
            {"a": 2, "extra": {}},
        ]
        database.sql(f"DROP TABLE {table}_items_books")
        await sink.write(visit(3, item(3, data={"a": 3})), b"")
    assert [fields(row) for row in rows(database, f"{table}_items_books")] == [{"a": 3, "extra": {}}]


async def test_a_user_who_may_not_add_columns_stores_fields_in_extra(database: Database, table: str) -> None:
    async with opened(database, table) as sink:
        await sink.write(visit(1, item(1, data={"a": 1})), b"")
    user = f"u{table}"
    if database.scheme == "postgresql":
        database.sql(f"CREATE USER {user} PASSWORD 'hunter2'")
        name = user
    else:
        database.sql(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'hunter2'")
        name = f"{user}@'127.0.0.1'"
    for granted in (table, f"{table}_items_books"):
        database.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {granted} TO {name}")
    uri = f"{database.uri(login=f'{user}:hunter2', table=table)}&table_per_spider"
    sink = open_sink(uri, worker="worker", spider=True)
    await sink.open()
    await sink.write(visit(2, item(2, data={"a": 2, "b": 2})), b"")
    await sink.close()
    assert fields(rows(database, f"{table}_items_books")[1]) == {"a": 2, "extra": {"b": 2}}


async def test_an_item_beyond_the_maximum_packet_size_of_the_server_is_cut(
    mariadb_server: Database, table: str
) -> None:
    data = {"text": "é'" * 700_000, "price": 1, "list": ["'" * 900_000]}
    numbers = {"numbers": list(range(1_000_000, 1_200_000))}
    for more, name in (("", f"{table}_items"), ("&table_per_spider", f"{table}_items_books")):
        sink: Any = open_sink(mariadb_server.uri(table=table) + more, worker="worker", spider=True)
        await sink.open()
        assert sink._max_packet_bytes == 16 << 20
        sink._max_packet_bytes = 1 << 20
        await sink.write(visit(1, item(1), item(1, 2, data), item(1, 3, numbers), item(1, 4)), b"")
        await sink.close()
        stored = mariadb_server.sql(f"SELECT number FROM {name} ORDER BY number").split()  # noqa: S608
        assert stored == [b"1", b"2", b"3", b"4"]
    query = f"SELECT CHAR_LENGTH(JSON_VALUE(data, '$.text')), JSON_VALUE(data, '$.price') FROM {table}_items"  # noqa: S608
    length, price = mariadb_server.sql(f"{query} WHERE number = 2").split()
    assert 10_000 < int(length) < 700_000
    assert price == b"1"


def test_a_value_gets_the_column_type_that_preserves_it() -> None:
    values = [True, "x", 1, 1.5, [1], {"a": 1}, (1,), None, float("nan"), 2**53, 2**53 + 1, Path("x")]
    kinds = [
        ColumnKind.BOOLEAN,
        ColumnKind.TEXT,
        ColumnKind.NUMBER,
        ColumnKind.NUMBER,
        ColumnKind.JSON,
        ColumnKind.JSON,
        ColumnKind.JSON,
    ]
    assert [kind_of(value) for value in values] == [*kinds, None, None, ColumnKind.NUMBER, None, None]
    assert spread({"a": 1, "A": 2, "b": "x", "c": None}, {"a": ColumnKind.NUMBER, "b": None}) == (
        {"a": 1.0},
        {"A": 2, "b": "x"},
    )


@pytest.mark.parametrize(
    ("uri", "spider", "name"),
    [
        ("postgresql://u@h/db", "books", "items"),
        ("postgresql://u@h/db?table=s.pages", "books", "s.items"),
        ("postgresql://u@h/db?table=shop", "books", "shop_items"),
        ("postgresql://u@h/db?table_per_spider", "Books.py:Books", "items_books_py_books"),
        ("postgresql://u@h/db?table_per_spider&table=a.shop", "x\"'`;", "a.shop_items_x_"),
        ("mysql://u@h/db?table_per_spider", "", "items_"),
    ],
)
def test_tables_of_items_have_names_that_need_no_quoting(uri: str, spider: str, name: str) -> None:
    assert parse_server_uri(uri, uri.partition(":")[0], rf"({TABLE_NAME}\.)?{TABLE_NAME}").items(spider) == name


def test_long_names_of_tables_are_shortened_and_stay_distinct() -> None:
    address = parse_server_uri("mysql://u@h/db?table_per_spider&table=" + "t" * 60, "mysql", TABLE_NAME)
    first, second = address.items("a" * 100), address.items("a" * 101)
    assert first != second
    assert len(first) == len(second) == 63
    assert len(column_of("é" * 100).encode()) <= 63
