"""The changes that a perpetual crawl reports, while its workers and its store are killed.

What is promised: each version of a page that was served at an acknowledged visit is reported once, in order, in every
output. A visit that was not acknowledged is made again; if the page has changed in between, the version of that visit
may be missing. The row of a page says how many visits were acknowledged, the log of the site how many were made.
"""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
from collections import defaultdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shoal.frontier.acknowledgement import replay
from shoal.sinks import merge
from tests.chaos.crawl import LONG, CrawlRun, open_crawl
from tests.servers import server
from tests.site.responses import Response, html
from tests.site.site import Site

pytestmark = [pytest.mark.chaos, pytest.mark.full]


def version(number: int) -> Response:
    """A version of a page. The log of the site has the length of its body, or the ETag of a 304."""
    return Response(body=html((), f"Version {number:04}", body="<p>" + "x" * number), etag=f'"{number}"')


def served(site: Site) -> dict[str, list[int]]:
    """The versions of each page that were served, in order."""
    empty = len(version(0).body)
    numbers: dict[str, list[int]] = defaultdict(list)
    for request in site.requests():
        if request.status == 200:
            numbers[request.url].append(request.bytes - empty)
        elif request.status == 304:
            numbers[request.url].append(int(request.headers["if-none-match"].strip('"')))
    return numbers


def reported(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The changes of each page in an output, by the number of the visit that found them."""
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_bytes().splitlines()]
        rows = [{**row, "url": row["_url"], "number": int(row["_number"])} for row in rows]
    else:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            items = connection.execute("SELECT url, number, data FROM items").fetchall()
        rows = [{**json.loads(data), "url": url, "number": int(number)} for url, number, data in items]
    by_url: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["number"]):
        by_url[row["url"]].append(row)
    return by_url


def check(output: Path, last: dict[str, int], fickle: set[str], crawl: CrawlRun) -> int:
    """Every change once and in order. Returns how many visits were not acknowledged."""
    versions, changes = served(crawl.site), reported(output)
    rows = {str(row["url"]): row for row in crawl.rows()}
    assert set(changes) == set(last)
    unacknowledged = 0
    for url in last:
        reports, row = changes[url], rows[url]
        assert len({change["number"] for change in reports}) == len(reports), f"reported twice: {reports}"
        assert [change["change"] for change in reports] == ["new"] + ["changed"] * (len(reports) - 1), reports
        if url in fickle and output.suffix == ".db":
            # A row of a visit that was not acknowledged stays in a database if the page changed back in between.
            continue
        # Each change starts from the text that the one before has reported.
        hashes = [change["new_hash"] for change in reports]
        assert [change["old_hash"] for change in reports] == ["", *hashes[:-1]], reports
        assert all(old != new for old, new in pairwise(hashes))
        assert hashes[-1] == row["text_hash"]
        assert row["changes"] == len(reports) - 1
        if url in fickle:
            continue
        numbers = [int(change["title"].split()[1]) for change in reports]
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == last[url]
        assert set(numbers) <= set(versions[url])
        lost = len(versions[url]) - int(str(row["visits"]))
        missing = [number for number in versions[url] if number not in numbers]
        assert len(missing) <= lost, f"{url}: {missing} were seen and not reported; {lost} visits were lost"
        unacknowledged += lost
    return unacknowledged


async def test_each_change_is_reported_once_while_workers_and_the_store_are_killed(tmp_path: Path) -> None:
    outputs = tmp_path / "changes.jsonl", tmp_path / "changes.db"
    policy = {"every": "1s", "changes": tuple(map(str, outputs))}
    rounds, pages = (200, 60) if LONG else (9, 30)
    with server(tmp_path / "server") as store:
        crawled = open_crawl(
            tmp_path,
            pages=pages,
            hosts=3,
            url=store.url,
            delay_seconds=0.02,
            lease_seconds=2.0,
            seeds=pages,
            policy=policy,
        )
        async with crawled as crawl:
            urls = [crawl.tree.url(number) for number in range(pages)]
            last = dict.fromkeys(urls, 1)
            fickle = set(urls[: pages // 3])

            def change(url: str) -> None:
                host, _, path = url.removeprefix("http://").partition("/")
                # Some pages change back and forth between two versions.
                crawl.site.at(host, f"/{path}", version(last[url] % 2 if url in fickle else last[url]))

            for url in urls:
                change(url)
            for _ in range(2):
                crawl.start()
            await crawl.requested(2 * pages)
            rng = random.Random(5)
            for round_ in range(rounds):
                for url in rng.sample(urls, pages // 2):
                    last[url] += 1
                    change(url)
                await crawl.requested(crawl.request_count() + rng.randrange(1, pages))
                if round_ % 4 == 2:
                    store.kill()
                    store.start()
                else:
                    await crawl.kill(rng.choice(list(crawl.workers)), reap=True)
                    crawl.start()
            made = {url: len(seen) for url, seen in served(crawl.site).items()}

            def seen_again() -> bool:
                return all(len(seen) > made[url] + 1 for url, seen in served(crawl.site).items())

            await crawl.until(seen_again, "the last versions are visited")
            await crawl.stop_workers()
            for output in outputs:
                await merge(str(output), live=set(), replay=partial(replay, crawl.frontier.void_batch))
            lost = [check(output, last, fickle, crawl) for output in outputs]
            assert all(lost), "no kill met a visit: this test proves nothing"
