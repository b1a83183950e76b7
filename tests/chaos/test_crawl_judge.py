"""The judge of crawls under faults detects every deliberate violation."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.crawl import CrawlRun, open_crawl
from tests.site.log import Began, Ended, Writer, read

pytestmark = [pytest.mark.chaos, pytest.mark.full]


def ask(crawl: CrawlRun, page: int, after_seconds: float, lasting_seconds: float = 0.001) -> None:
    """Add a request to the log, so many seconds after the end of the last one of its host."""
    url = crawl.tree.url(page)
    host, path = url.split("/", 3)[2], "/" + url.split("/", 3)[3]
    ended = max(request.ended for request in read(crawl.site.log) if request.host == host)
    began_us = int((ended + after_seconds) * 1e6)
    writer = Writer(crawl.site.log)
    writer.write(Began(9000 + page, began_us, host, host, "GET", path, {}))
    writer.write(Ended(9000 + page, began_us + int(lasting_seconds * 1e6), 200, 10, "done"))


@contextlib.contextmanager
def broken(crawl: CrawlRun) -> Iterator[None]:
    """Restore the log and the outputs of the crawl afterwards."""
    left = [crawl.site.log, *crawl.outputs]
    kept = {path: path.read_bytes() for path in left}
    yield
    for path in left:
        path.write_bytes(kept[path])


async def test_every_deliberate_violation_is_detected(tmp_path: Path) -> None:
    async with open_crawl(tmp_path, pages=24, hosts=3, outputs=("pages.db", "pages.jsonl")) as crawl:
        crawl.start()
        await crawl.finish()
        await crawl.judge(extra=0)
        with broken(crawl):
            ask(crawl, 0, 1.0, lasting_seconds=1.0)
            ask(crawl, 3, -0.5)
            with pytest.raises(AssertionError, match="I1"):
                await crawl.judge()
            await crawl.judge(overlaps=1)
        with broken(crawl):
            ask(crawl, 0, 0.0999)
            with pytest.raises(AssertionError, match="I2"):
                await crawl.judge()
        with broken(crawl):
            ask(crawl, 0, 1.0)
            assert crawl.unreasoned(await crawl.judge(extra=1))
            with pytest.raises(AssertionError, match="1 extra requests, 0 allowed"):
                await crawl.judge(extra=0)
        with broken(crawl):
            with contextlib.closing(sqlite3.connect(crawl.outputs[0], isolation_level=None)) as connection:
                connection.execute("DELETE FROM pages WHERE url = ?", (crawl.tree.url(7),))
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            with pytest.raises(AssertionError, match=r"I4: 1 pages are not in pages\.db"):
                await crawl.judge()
        with broken(crawl):
            lines = crawl.outputs[1].read_bytes().splitlines(keepends=True)
            crawl.outputs[1].write_bytes(b"".join([*lines, lines[5]]))
            with pytest.raises(AssertionError, match=r"I8: 1 pages are more than once in pages\.jsonl"):
                await crawl.judge()
        await crawl.judge(extra=0)
