"""The outputs under test, each read by other means than its own sink, and a store that remembers its replies."""

from __future__ import annotations

import contextlib
import csv
import datetime
import gzip
import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import duckdb
import pytest

from shoal.model.record import Item, Record, RecordKey
from shoal.sinks import takes
from shoal.sinks.contract import Stored
from tests.sinks.databases import Database


@dataclass(frozen=True)
class Output:
    """A technology: the name a user types, and how its rows are read. `keeps_refused`: a refused row may be seen.

    `item_reader` reads the rows of items: of the same file, or of the table beside that of pages.

    `nul` is what becomes of a NUL. `service` is the fixture of the server it needs, `server` that server.
    """

    name: str
    reader: Callable[[Any], list[dict[str, Any]]]
    item_reader: Callable[[Any], list[dict[str, Any]]]
    keeps_refused: bool
    nul: str = "\0"
    service: str = ""
    server: Database | None = None

    def uri(self, folder: Path) -> str:
        return str(folder / self.name) if self.server is None else self.server.uri(table=self.table(folder))

    def table(self, folder: Path) -> str:
        return "t" + hashlib.sha256(str(folder).encode()).hexdigest()[:16]

    def read(self, folder: Path) -> list[dict[str, Any]]:
        if self.server is None:
            return self.reader(folder / self.name)
        return self.reader((self.server, self.table(folder)))

    def keys(self, folder: Path) -> Counter[RecordKey]:
        return Counter((row["crawl"], row["url"]) for row in self.read(folder))

    def read_items(self, folder: Path) -> list[dict[str, Any]]:
        if self.server is None:
            return self.item_reader(folder / self.name)
        return self.item_reader((self.server, f"{self.table(folder)}_items"))

    def item_keys(self, folder: Path) -> Counter[RecordKey]:
        rows = self.read_items(folder)
        return Counter((row["crawl"], f"{row['url']}#{row['spider']}/{row['number']}") for row in rows)

    @property
    def has_pages_too(self) -> bool:
        """Whether a crawl with a spider has its pages in this output as well."""
        return self.server is not None or Record in takes(self.name, spider=True)


def read_sqlite(path: Path) -> list[dict[str, Any]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        rows = [dict(row) for row in connection.execute("SELECT * FROM pages")]
    for row in rows:
        row["redirects"] = json.loads(row["redirects"])
        assert row["robots_ignored"] in (0, 1)
        row["robots_ignored"] = bool(row["robots_ignored"])
    return rows


def read_sqlite_items(path: Path) -> list[dict[str, Any]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        rows = [dict(row) for row in connection.execute("SELECT * FROM items")]
    return [row | {"data": json.loads(row["data"])} for row in rows]


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    *lines, rest = path.read_bytes().split(b"\n")
    assert rest == b"", "the last line has an end"
    return [json.loads(line) for line in lines]


def read_jsonl_gz(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines(keepends=False)]


def read_jsonl_zst(path: Path) -> list[dict[str, Any]]:
    """By DuckDB, which is what people read such files with."""
    if not path.stat().st_size:
        return []
    query = f"SELECT json FROM read_ndjson_objects('{path}', compression='zstd', maximum_object_size=100000000)"  # noqa: S608
    return [json.loads(line) for (line,) in duckdb.execute(query).fetchall()]


def read_csv(path: Path) -> list[dict[str, Any]]:
    csv.field_size_limit(1 << 30)
    with path.open(newline="", encoding="utf-8") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    for row in rows:
        for name, value in row.items():
            assert value[:1] not in tuple("=+-@\t\r\n"), "no cell is a formula"
            if re.match(r"'+[=+\-@\t\r\n＝＋－＠]", value):
                row[name] = value[1:]
        row["redirects"] = json.loads(row["redirects"])
        row["robots_ignored"] = {"true": True, "false": False}[row["robots_ignored"]]
        row["error"], row["fetched_at"] = row["error"] or None, row["fetched_at"] or None
        for name, kind in get_type_hints(Record).items():
            if kind in (int, float) and name != "fetched_at":
                row[name] = kind(row[name])
    return rows


def read_csv_items(path: Path) -> list[dict[str, Any]]:
    """Cells are text: a cell that is JSON is read as such."""
    csv.field_size_limit(1 << 30)
    with path.open(newline="", encoding="utf-8") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    for row in rows:
        for name, value in row.items():
            assert value[:1] not in tuple("=+-@\t\r\n") or _is_json(value), "no cell is a formula"
            if re.match(r"'+[=+\-@\t\r\n＝＋－＠]", value):
                row[name] = value[1:]
    return [_item({_name(name): _cell(name, value) for name, value in row.items() if value}) for row in rows]


def read_jsonl_items(path: Path) -> list[dict[str, Any]]:
    return [_item(row) for row in read_jsonl(path)]


def read_jsonl_gz_items(path: Path) -> list[dict[str, Any]]:
    return [_item(row) for row in read_jsonl_gz(path)]


def read_jsonl_zst_items(path: Path) -> list[dict[str, Any]]:
    return [_item(row) for row in read_jsonl_zst(path)]


def _item(row: dict[str, Any]) -> dict[str, Any]:
    """A flat row as the columns of an item."""
    origin = {
        name: row.pop(f"_{name}", "" if name == "spider" else None)
        for name in ("crawl", "url", "spider", "number", "fetched_at")
    }
    return origin | {"data": row | (row.pop("_more", None) or {})}


def _name(text: str) -> str:
    return text[1:] if re.match(r"'+[=+\-@\t\r\n＝＋－＠]", text) else text


def _cell(name: str, text: str) -> Any:
    return json.loads(text) if _is_json(text) and name not in ("_crawl", "_url", "_spider") else text


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def read_parquet_items(path: Path) -> list[dict[str, Any]]:
    """By DuckDB, which does not know which texts are JSON."""
    if not list(path.glob("*.parquet")):
        return []
    with contextlib.closing(duckdb.connect()) as connection:
        source = f"read_parquet('{path}/*.parquet', union_by_name = true)"
        result = connection.execute(f"SELECT * REPLACE (epoch_ms(_fetched_at) AS _fetched_at) FROM {source}")  # noqa: S608
        names = [column[0] for column in result.description]
        rows = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    items = []
    for row in rows:
        at = row["_fetched_at"]
        row["_fetched_at"] = shown(at and datetime.datetime.fromtimestamp(at / 1000, datetime.UTC))
        items.append(
            _item(
                {
                    name: _cell(name, value) if isinstance(value, str) and value[:1] in "[{" else value
                    for name, value in row.items()
                    if value is not None
                }
            )
        )
    return items


def read_parquet(path: Path) -> list[dict[str, Any]]:
    rows = _parquet(path)
    for row in rows:
        row["redirects"] = [[hop["url"], hop["status"]] for hop in row["redirects"]]
    return rows


def _parquet(path: Path) -> list[dict[str, Any]]:
    """By DuckDB: the other opinion on what Arrow wrote."""
    if not list(path.glob("*.parquet")):
        return []
    with contextlib.closing(duckdb.connect()) as connection:
        query = f"SELECT * REPLACE (epoch_ms(fetched_at) AS fetched_at) FROM '{path}/*.parquet'"  # noqa: S608
        result = connection.execute(query)
        names = [column[0] for column in result.description]
        rows = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    for row in rows:
        at = row["fetched_at"]
        row["fetched_at"] = shown(at and datetime.datetime.fromtimestamp(at / 1000, datetime.UTC))
    return rows


def read_postgresql(place: tuple[Database, str]) -> list[dict[str, Any]]:
    server, table = place
    # In hex: psql does not print every character.
    query = f"SELECT encode(convert_to(row_to_json({table})::text, 'UTF8'), 'hex') FROM {table}"  # noqa: S608
    lines = server.sql(query).split()
    rows: list[dict[str, Any]] = [json.loads(bytes.fromhex(line.decode())) for line in lines]
    for row in rows:
        assert len(row.pop("id")) == 2 + 2 * 16
        row["fetched_at"] = shown(row["fetched_at"] and datetime.datetime.fromisoformat(row["fetched_at"]))
    return rows


def read_mariadb(place: tuple[Database, str]) -> list[dict[str, Any]]:
    server, table = place
    pairs = ", ".join(f"'{name}', {name}" for name in Record.__struct_fields__ if name != "redirects")
    query = f"SELECT JSON_OBJECT({pairs}, 'redirects', JSON_COMPACT(redirects)) FROM {table}"  # noqa: S608
    lines = server.sql(query).split(b"\n")
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line]
    for row in rows:
        row["robots_ignored"] = bool(row["robots_ignored"])
        at = row["fetched_at"]
        row["fetched_at"] = shown(at and datetime.datetime.fromisoformat(at).replace(tzinfo=datetime.UTC))
    return rows


def read_mariadb_items(place: tuple[Database, str]) -> list[dict[str, Any]]:
    server, table = place
    pairs = ", ".join(f"'{name}', {name}" for name in Item.__struct_fields__)
    lines = server.sql(f"SELECT JSON_OBJECT({pairs}) FROM {table}").split(b"\n")  # noqa: S608
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line]
    for row in rows:
        row["data"] = json.loads(row["data"])
        at = row["fetched_at"]
        row["fetched_at"] = shown(at and datetime.datetime.fromisoformat(at).replace(tzinfo=datetime.UTC))
    return rows


def shown(at: datetime.datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# A new technology joins the contract here.
FILES = (
    Output("pages.db", read_sqlite, read_sqlite_items, keeps_refused=True),
    Output("pages.jsonl", read_jsonl, read_jsonl_items, keeps_refused=False),
    Output("pages.jsonl.gz", read_jsonl_gz, read_jsonl_gz_items, keeps_refused=False),
    Output("pages.jsonl.zst", read_jsonl_zst, read_jsonl_zst_items, keeps_refused=False),
    Output("pages.csv", read_csv, read_csv_items, keeps_refused=False),
    Output("pages.parquet", read_parquet, read_parquet_items, keeps_refused=False),
)
OUTPUTS = (
    *FILES,
    Output(
        "postgresql", read_postgresql, read_postgresql, keeps_refused=True, nul="\ufffd", service="postgresql_server"
    ),
    Output("mysql", read_mariadb, read_mariadb_items, keeps_refused=True, service="mariadb_server"),
)


@dataclass
class Store:
    """Accepts each key once, from the first batch that has it. The same receipt gets the same reply."""

    taken: Counter[RecordKey] = field(default_factory=Counter)
    replies: dict[bytes, list[RecordKey]] = field(default_factory=dict)

    def acknowledge(self, receipt: bytes) -> list[RecordKey]:
        if receipt not in self.replies:
            keys = keys_of(receipt)
            self.replies[receipt] = [key for key in keys if key in self.taken]
            self.taken.update(key for key in keys if key not in self.taken)
        return self.replies[receipt]

    async def replay(self, receipt: bytes) -> list[RecordKey]:
        return self.acknowledge(receipt)


def receipt_of(name: str, records: Sequence[Stored]) -> bytes:
    return json.dumps([name, [record.key for record in records]]).encode()


def keys_of(receipt: bytes) -> list[RecordKey]:
    return list(dict.fromkeys((crawl, url) for crawl, url in json.loads(receipt)[1]))


def page(number: int, **more: Any) -> Record:
    values: dict[str, Any] = {
        "status": 200,
        "title": f"Page {number}",
        "text": "word " * 200,
        "fetched_at": 1700000000.5,
    } | more
    return Record(crawl="crawl", url=f"https://site.example/{number}", **values)


def item(page: int, number: int = 1, data: dict[str, Any] | None = None, **more: Any) -> Item:
    values: dict[str, Any] = {"spider": "books", "fetched_at": 1700000000.5} | more
    data = {"title": f"Book {page}/{number}", "price": 9.5, "tags": ["a", "b"]} if data is None else data
    return Item(crawl="crawl", url=f"https://site.example/{page}", number=number, data=data, **values)


def items_of(page: int) -> list[Item]:
    """None, one or two of a page."""
    return [item(page, number) for number in range(1, page % 3 + 1)]


def urls(numbers: Any) -> set[RecordKey]:
    return {("crawl", f"https://site.example/{number}") for number in numbers}


@contextlib.contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A small file system of its own. Mounting is for root: others skip, and root in CI fails."""
    folder.mkdir()
    tried = None
    if os.geteuid() == 0 and shutil.which("mount"):
        tried = subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)], capture_output=True, text=True)
    if tried is None or tried.returncode:
        reason = f"cannot mount a tmpfs: {tried.stderr.strip() if tried else 'needs root and mount'}"
        if os.environ.get("CI") == "true" and os.geteuid() == 0:
            pytest.fail(reason)
        pytest.skip(reason)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
