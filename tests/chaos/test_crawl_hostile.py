"""Hosts that do all a server can do to a crawler, in one crawl with ordinary ones."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import time
from pathlib import Path

import pytest

from shoal.model import Visit
from tests.chaos.crawl import CRAWL, open_crawl
from tests.site.hostile import Hostile, Reply, drip, endless, keep, ok, resetting, silent

pytestmark = [pytest.mark.chaos, pytest.mark.full]
TIMEOUT_SECONDS = 3.0
MEMORY_BYTES = 400_000_000
HTML = "Content-Type: text/html"
BOMB_BYTES = 200_000_000


# The reasons that each may be counted with. None: the reason is counted for the last hop of a redirect.
REASONS: dict[str, set[str | None]] = {
    "silence": {"timed out"},
    "one byte a second": {"timed out", "too slow"},
    "a head without an end": {"headers too large"},
    "a head by drops": {"timed out", "too slow"},
    # On a busy machine, the time is over first.
    "a body without an end": {"too large", "timed out"},
    "chunks without an end": {"too large", "timed out"},
    "interim answers without an end": {"headers too large"},
    "a bomb": {"too large"},
    "a reset": {"lost connection"},
    "a reset within the body": {"reset"},
    "no HTTP": {"bad header"},
    "nothing": {"lost connection"},
    "a promise": {"truncated"},
    "a status that is none": {"status 999"},
    "two lengths": {"bad header"},
    "NUL in a header": {"bad header"},
    "itself": {None},
    "a private address": {None},
    "no address": {"invalid redirect target"},
    "a file": {"invalid redirect target"},
    "a silent robots.txt": {"robots.txt: timed out"},
}


def evil() -> dict[str, Reply]:
    """The reply of each host to every request except the one for robots.txt."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
    return {
        "silence": silent(),
        "one byte a second": drip(b"x" * 10_000, seconds=1.0, first=head + b"Content-Length: 10000\r\n\r\n"),
        "a head without an end": endless(b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"x" * 1000 + b"\r\n"),
        "a head by drops": drip(b"X: y\r\n" * 1000, seconds=0.5, first=b"HTTP/1.1 200 OK\r\n"),
        "a body without an end": endless(head + b"\r\n", b"<p>more" * 1000),
        "chunks without an end": endless(head + b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\n" * 100),
        "interim answers without an end": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 50),
        "a bomb": ok(gzip.compress(bytes(BOMB_BYTES)), HTML, "Content-Encoding: gzip"),
        "a reset": resetting(),
        "a reset within the body": resetting(head + b"Content-Length: 10000\r\n\r\nhello"),
        "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
        "nothing": b"",
        "a promise": head + b"Content-Length: 10000\r\n\r\nhello",
        "a status that is none": b"HTTP/1.1 99999 What\r\n\r\n",
        "two lengths": head + b"Content-Length: 5\r\nContent-Length: 500\r\n\r\nhello",
        "NUL in a header": head + b"X-Evil: a\0b\r\nContent-Length: 0\r\n\r\n",
        "itself": ok(b"", "Location: /again", status="302 Found"),
        "a private address": ok(b"", "Location: http://10.0.0.1/", status="302 Found"),
        "no address": ok(b"", "Location: http://[::1", status="302 Found"),
        "a file": ok(b"", "Location: file:///etc/passwd", status="302 Found"),
    }


async def test_hostile_hosts_end_in_time_and_do_not_affect_other_hosts(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        names: dict[str, str] = {}
        for number, (name, reply) in enumerate(evil().items()):
            replies = {"/robots.txt": keep(ok(b"")), "*": reply}
            site = await stack.enter_async_context(Hostile(replies, address=f"127.0.9.{number + 1}"))
            names[site.url("/page")] = name
        # And one whose robots.txt is what is wrong.
        stuck = await stack.enter_async_context(Hostile({"*": silent()}, address="127.0.9.100"))
        names[stuck.url("/page")] = "a silent robots.txt"
        crawl = await stack.enter_async_context(
            open_crawl(
                tmp_path,
                pages=150,
                hosts=5,
                seeds=5,
                lease_seconds=10.0,
                policy={"timeout_seconds": TIMEOUT_SECONDS, "retries": 0, "body_bytes": 2_000_000},
                settings={"frontier.host_failures": 1},
            )
        )
        await crawl.frontier.add(CRAWL, [Visit(url=url, found="seed") for url in names])
        worker = crawl.start()
        await crawl.until(lambda: len(crawl.rows()) >= 150, "honest hosts are crawled")
        # Each visit has its robots.txt, its page and at most one more hop.
        until = time.monotonic() + 4 * TIMEOUT_SECONDS + 20
        while not await crawl.finished() and time.monotonic() < until:
            crawl.check_workers()
            await asyncio.sleep(0.1)
        assert crawl.memory_bytes(worker) < MEMORY_BYTES
        await crawl.finish(1)
        rows = {str(row["url"]): row for row in crawl.rows()}
        for url, name in names.items():
            assert (rows[url]["error"] if url in rows else None) in REASONS[name], name
        counts = await crawl.counts()
        assert counts.reasons["failed:redirect loop"] == 1
        assert counts.reasons["failed:robots.txt: forbidden address"] == 1
        assert {url for url in rows if rows[url]["status"] == 200} == crawl.tree.walk()
        judge = crawl.site.judge(*crawl.tree.hosts)
        assert not judge.impolite(crawl.delay_seconds)
        assert not judge.repeated()
