"""`outputs`: the same crawl into SQLite and into PostgreSQL, with one process and with two, taking turns.

The database is a server of its own on the same cores, and makes every batch durable, as SQLite does. Its CPU is
reported separately. Start-up is subtracted from the CPU time as in `crawl`.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from bench.crawl.against import Turns, single_page
from bench.crawl.contestants import Contestant
from bench.crawl.corpus import DJANGO, MIX, pages, unpack
from bench.crawl.program import Run, run, shoal
from bench.database import cpu_seconds
from bench.figures import Figure
from bench.server import Server
from bench.size import Size
from tests.sinks import databases
from tests.system.documents import Web

# As a fraction of the pages per second with SQLite.
_TO_SQLITE = 0.85
_COPIES = 10


class IntoSqlite(Contestant):
    name = "SQLite"
    fast = True

    def crawl(self, web: Web, seeds: list[str], folder: Path, processes: int) -> Run:
        with Server(durable=True) as store:
            command = shoal(seeds, folder, "--store", store.url, workers=processes)
            made = run(web, [command], folder, store_cpu=store.cpu_seconds)
        with sqlite3.connect(folder / "pages.db") as database:
            _check(made, *database.execute("SELECT count(*) FROM pages WHERE status = 200").fetchone())
        return made


class IntoPostgresql(Contestant):
    name = "PostgreSQL"
    fast = True

    def __init__(self, server: databases.Database) -> None:
        self.server = server

    def crawl(self, web: Web, seeds: list[str], folder: Path, processes: int) -> Run:
        assert self.server.process is not None
        pid = self.server.process.pid
        before = cpu_seconds(pid)
        with Server(durable=True) as store:
            command = shoal(seeds, folder, "--store", store.url, workers=processes, out=self.server.uri())
            made = run(web, [command], folder, store_cpu=store.cpu_seconds)
        made.database_seconds = cpu_seconds(pid) - before
        _check(made, int(self.server.sql("SELECT count(*) FROM pages WHERE status = 200")))
        self.server.sql("DROP TABLE pages; CHECKPOINT")
        return made


def _check(made: Run, rows: int) -> None:
    if rows < made.pages:
        raise RuntimeError(f"{made.pages} pages were fetched and {rows} are in the output: void.")


async def outputs(size: Size) -> list[Figure]:
    trees = (DJANGO,) if size.quick else MIX
    unpack(trees)
    html = sum(pages(tree) for tree in trees)
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name, databases.postgresql(durable=True) as server:
        single = single_page(Path(name))
        every = [
            Turns(contestant, number) for number in (1, 2) for contestant in (IntoSqlite(), IntoPostgresql(server))
        ]
        with Web(Path(name) / "web", [(single, 2), *((tree, _COPIES) for tree in trees)]) as web:

            def seeds(count: int) -> list[str]:
                return [web.sites(tree)[copy] + tree.start for tree in trees for copy in range(count)]

            for turns in every:
                turns.start_up(web, [site + single.start for site in web.sites(single)])
            for at in range(3 if size.quick else size.repeats):
                # The order alternates, too, because the speed of the machine changes from minute to minute.
                for turns in every if at % 2 == 0 else every[::-1]:
                    turns.turn(web, seeds, html)
    return [*_figures(*every[:2]), *_figures(*every[2:])]


def _figures(sqlite: Turns, postgresql: Turns) -> list[Figure]:
    what = f"crawl, {sqlite.processes} process{'' if sqlite.processes == 1 else 'es'}"
    run = sqlite.runs[0]
    figures = [
        Figure(
            name=f"{what}: pages into PostgreSQL to those into SQLite", unit="times", at_least=_TO_SQLITE,
            values=_ratios(postgresql.per_second, sqlite.per_second),
            note=f"{run.pages:,} pages of {run.bytes / run.requests / 1e3:.0f} KB",
        ),
        Figure(
            name=f"{what}: CPU into PostgreSQL to that into SQLite", unit="times",
            values=_ratios(postgresql.cpu_ms, sqlite.cpu_ms), note="without the database server",
        ),
    ]  # fmt: skip
    for turns in (sqlite, postgresql):
        name = f"{what} into {turns.contestant.name}"
        figures += [
            Figure(name=f"{name}: pages", unit="pages/s", values=turns.per_second),
            Figure(name=f"{name}: CPU", unit="ms/page", values=turns.cpu_ms),
        ]
    figures.append(
        Figure(
            name=f"{what}: CPU of PostgreSQL", unit="ms/page",
            values=[run.database_seconds / run.pages * 1e3 for run in postgresql.runs],
        )
    )  # fmt: skip
    return figures


def _ratios(values: list[float], others: list[float]) -> list[float]:
    return [value / other for value, other in zip(values, others, strict=True)]
