"""Outputs: records per second and CPU per record of each sink, compared with the fastest bulk path of its plain driver.

plain.py describes the plain path: it makes each batch durable too, with the same tables and keys, and guarantees no
more. The two take turns. CPU is that of this process; that of a database server is reported separately.
"""

from __future__ import annotations

import gzip
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bench import plain
from bench.crawl.against import shown
from bench.database import cpu_seconds
from bench.figures import Figure
from bench.plain import Run, batches
from bench.size import Size
from shoal.model.record import Capture, Item, Record
from shoal.model.response import Response
from shoal.sinks import merge, open_sink
from shoal.sinks.contract import Stored
from tests.sinks import databases

# The share of the plain path's rate that a sink must reach, if it has a driver to compare with.
TARGET = 0.6
COMPARED = ("sqlite", "postgresql", "mysql", "parquet")

_ITEMS_OF_A_PAGE = 4
_HEADERS = (
    ("server", "nginx/1.22.1"), ("date", "Sun, 15 Nov 2026 22:21:00 GMT"), ("content-type", "text/html; charset=utf-8"),
    ("last-modified", "Sun, 15 Nov 2026 20:00:00 GMT"), ("etag", '"5f3e-1a2b"'), ("cache-control", "max-age=600"),
)  # fmt: skip
_ASKED = (("host", "docs.example"), ("user-agent", "ShoalBench/1.0 (+https://example.org/bot)"), ("accept", "*/*"))


class Contest(NamedTuple):
    """A sink and its plain path, each made for one repeat; what they write, and the server's process if there is one.

    `how` names the plain path.
    """

    sink: Callable[[int], Run]
    other: Callable[[int], Run]
    how: str
    records: str = "pages"
    server: int = 0


class Cost(NamedTuple):
    wall_seconds: float
    cpu_seconds: float
    server_seconds: float


def _words(chance: random.Random) -> Callable[[int], str]:
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(3000)]
    weights = [1 / rank for rank in range(1, 3001)]
    return lambda number: " ".join(chance.choices(words, weights, k=number))


def pages(number: int, spider: str = "") -> list[Record]:
    """Records like those of documentation: 5 KB of text, which compresses as language does."""
    chance = random.Random(1)
    words = _words(chance)
    return [
        Record(
            crawl="bench", url=f"https://docs.example/{chance.getrandbits(32)}/page-{at}.html", status=200,
            title=f"Chapter {at}", text=words(900), language="en", content_type="text/html", charset="utf-8",
            bytes=39_000, depth=3, links=70, etag='"5f3e-1a2b"', fetched_at=1.7e9 + at, response_seconds=0.043,
            bytes_received=9_000, address="192.0.2.1", http_version="1.1", worker="worker1", spider=spider,
        )
        for at in range(number)
    ]  # fmt: skip


def with_items(number: int) -> list[Stored]:
    """This many records: pages with the items that a spider found on them."""
    records: list[Stored] = []
    for page in pages(number // (1 + _ITEMS_OF_A_PAGE), spider="books"):
        records.append(page)
        for at in range(1, _ITEMS_OF_A_PAGE + 1):
            data = {
                "title": f"{page.title}/{at}",
                "price": 9.5,
                "in_stock": True,
                "text": page.text[:300],
                "tags": ["a"],
            }
            records.append(
                Item(crawl="bench", url=page.url, spider="books", number=at, fetched_at=page.fetched_at, data=data)
            )
    return records


def captures(number: int) -> list[Capture]:
    """Responses of 39 KB of HTML."""
    chance = random.Random(1)
    words = _words(chance)
    made = []
    for at in range(number):
        body = "".join(f'<p class="c{n % 7}"><a href="/page-{n}.html">{words(40)}</a>\n' for n in range(128)).encode()
        page = Response(
            url=f"https://docs.example/{chance.getrandbits(32)}/page-{at}.html", status=200, headers=_HEADERS,
            body=body, address="192.0.2.1", http_version="1.1", bytes_received=9_000, started_at=1.7e9 + at,
        )  # fmt: skip
        made.append(Capture(crawl="bench", page=page, request_headers=_ASKED))
    return made


def through_sink(uri: str, *, spider: bool = False) -> Run:
    async def run(records: Sequence[Stored]) -> None:
        sink = open_sink(uri, worker="worker", spider=spider)
        await sink.open()
        for batch in batches(records):
            await sink.write(batch, b"receipt")
            await sink.commit(())
        await sink.close()
        await merge(uri, live=(), replay=_nobody, spider=spider)

    return run


async def _nobody(receipt: bytes) -> list[tuple[str, str]]:
    raise AssertionError("everything was settled")


def contests(stack: ExitStack, folder: Path) -> dict[str, Contest]:
    """The contests of each technology that is installed on this machine."""

    def file(ending: str, opener: Callable[[Path], Any], write: Any, how: str) -> Contest:
        return Contest(
            lambda at: through_sink(str(folder / f"{at}{ending}")),
            lambda at: plain.into_file(folder / f"plain{at}{ending}", opener, write),
            how,
        )

    by_name = {
        "sqlite": Contest(
            lambda at: through_sink(str(folder / f"{at}.db")),
            lambda at: plain.into_sqlite(folder / f"plain{at}.db"),
            "executemany",
        ),
        "sqlite, items": Contest(
            lambda at: through_sink(str(folder / f"items{at}.db"), spider=True),
            lambda at: plain.into_sqlite(folder / f"plain-items{at}.db"),
            "executemany", "items",
        ),
        "jsonl": file(".jsonl", lambda path: path.open("wb"), plain.write_lines, "msgspec"),
        "jsonl.gz": file(".jsonl.gz", lambda path: gzip.GzipFile(path, "wb", 1), plain.write_lines, "msgspec, gzip"),
        "csv": file(".csv", lambda path: path.open("w", newline=""), plain.write_csv, "csv.writer"),
        "parquet": Contest(
            lambda at: through_sink(str(folder / f"{at}.parquet")),
            lambda at: plain.into_parquet(folder / f"plain{at}.parquet"),
            "pyarrow, flushed once",
        ),
        "warc": Contest(
            lambda at: through_sink(f"warc:{folder / f'warc{at}'}"),
            lambda at: plain.into_warc(folder / f"plain{at}.warc.gz"),
            "FastWARC", "captures",
        ),
    }  # fmt: skip
    if shutil.which("psql"):
        by_name |= _postgresql(stack.enter_context(databases.postgresql(durable=True)))
    if shutil.which("mariadb"):
        by_name |= _mysql(stack.enter_context(databases.mariadb()))
    return by_name


def _postgresql(server: databases.Database) -> dict[str, Contest]:
    assert server.process is not None
    pid = server.process.pid
    return {
        "postgresql": Contest(
            lambda at: through_sink(server.uri(table=f"sink{at}")),
            lambda at: plain.into_postgresql(server.uri(), f"plain{at}"),
            "COPY", server=pid,
        ),
        # The first run, which does not count, adds the pages.
        "postgresql, known pages": Contest(
            lambda at: through_sink(server.uri(table="known")),
            lambda at: plain.into_postgresql(server.uri(), "plain_known", known=True),
            "COPY to a temporary table, upsert", server=pid,
        ),
        "postgresql, items": Contest(
            lambda at: through_sink(server.uri(table=f"sinki{at}"), spider=True),
            lambda at: plain.into_postgresql(server.uri(), f"plaini{at}"),
            "COPY", "items", server=pid,
        ),
    }  # fmt: skip


def _mysql(server: databases.Database) -> dict[str, Contest]:
    assert server.process is not None
    pid = server.process.pid
    place = {
        "host": "127.0.0.1", "port": server.port, "user": "shoal", "password": databases.PASSWORD, "database": "shoal",
    }  # fmt: skip
    return {
        "mysql": Contest(
            lambda at: through_sink(server.uri(table=f"sink{at}")),
            lambda at: plain.into_mysql(place, f"plain{at}"),
            "executemany", server=pid,
        ),
        "mysql, items": Contest(
            lambda at: through_sink(server.uri(table=f"sinki{at}"), spider=True),
            lambda at: plain.into_mysql(place, f"plaini{at}"),
            "executemany", "items", server=pid,
        ),
    }  # fmt: skip


async def sinks(size: Size) -> list[Figure]:
    """Records per second of each sink as a share of the plain path, and its CPU per record."""
    number = size.of(20_000)
    workloads: dict[str, Sequence[Stored]] = {
        "pages": pages(number), "items": with_items(number), "captures": captures(number // 10)
    }  # fmt: skip
    figures = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-bench-")))
        for name, contest in contests(stack, folder).items():
            records = workloads[contest.records]
            ours, theirs = [], []
            # The first run of each is a warm-up and does not count.
            for at in range(size.repeats + 1):
                theirs.append(await _measured(contest.other(at), records, contest.server))
                ours.append(await _measured(contest.sink(at), records, contest.server))
            figures += _figures(name, contest, ours[1:], theirs[1:], len(records))
    return figures


async def _measured(run: Run, records: Sequence[Stored], server: int) -> Cost:
    os.sync()
    before = cpu_seconds(server) if server else 0.0
    began, used = time.perf_counter(), time.process_time()
    await run(records)
    wall, cpu = time.perf_counter() - began, time.process_time() - used
    return Cost(wall, cpu, cpu_seconds(server) - before if server else 0.0)


def _figures(name: str, contest: Contest, ours: list[Cost], theirs: list[Cost], records: int) -> list[Figure]:
    def each(costs: list[Cost]) -> list[list[float]]:
        """Records per second, and microseconds per record of this process and of the server."""
        return [
            [records / cost.wall_seconds for cost in costs],
            [cost.cpu_seconds / records * 1e6 for cost in costs],
            [cost.server_seconds / records * 1e6 for cost in costs],
        ]

    rates, cpus, servers = zip(each(ours), each(theirs), strict=True)
    figures = [
        Figure(
            name=f"sink {name}: share of the plain path", unit="x",
            values=[there.wall_seconds / here.wall_seconds for here, there in zip(ours, theirs, strict=True)],
            at_least=TARGET if name in COMPARED else None, note=f"{contest.how}; {records:,} {contest.records}",
        ),
        Figure(name=f"sink {name}: speed", unit="records/s", values=rates[0], note=f"plain {shown(rates[1])}"),
        Figure(name=f"sink {name}: CPU", unit="us/record", values=cpus[0], note=f"plain {shown(cpus[1])}"),
    ]  # fmt: skip
    if contest.server:
        figures.append(
            Figure(
                name=f"sink {name}: CPU of the server", unit="us/record", values=servers[0],
                note=f"plain {shown(servers[1])}",
            )
        )  # fmt: skip
    return figures
