"""Feed exports that lose no item: -o, -O and FEEDS with local files.

Scrapy writes a feed through a buffer, and not together with the acknowledgement of a page. Here the items of a page
are durable in a part file before the page is acknowledged, and the parts of all processes are merged into one file
(`sinks/files`). An item of a page whose lease was lost does not become visible: another process makes the page again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.extensions.feedexport import FeedExporter, FileFeedStorage
from scrapy.utils.misc import load_object

from shoal.errors import ShoalError
from shoal.frontier import Frontier
from shoal.frontier.acknowledgement import AckBatch, pack_written, rejected_keys, replay
from shoal.frontier.inspect import store_seconds
from shoal.model.crawl import Crawl
from shoal.model.record import RecordKey
from shoal.scrapy.feed_format import FeedFormat, obstacle
from shoal.sinks.files.feed import FeedLine, FeedSink, merge_feed, write_empty
from shoal.sinks.files.part import parts_folder

log = logging.getLogger("shoal.scrapy")
_MERGE_SECONDS = 2.0
_VisitKey = tuple[str, int]


class _Feed:
    def __init__(
        self, crawler: Crawler, worker: str, uri: str, kind: Any, options: dict[str, Any], accepts: Any
    ) -> None:
        self.uri = uri
        self.path = Path(FileFeedStorage(uri).path)
        self.options = options
        self.accepts: Callable[[Any], bool] = accepts
        self.items = 0
        self.format = FeedFormat(crawler, self.path, kind, options)
        self.sink = FeedSink(self.path, worker=worker, on_trouble=partial(log.error, "%s"))


class Feeds:
    """The feeds of a process. `is_leased` says whether a request has a visit that will be acknowledged."""

    def __init__(
        self, crawler: Crawler, frontier: Frontier, crawl: Crawl, is_leased: Callable[[Request], bool]
    ) -> None:
        self._crawler = crawler
        self._frontier = frontier
        self._crawl = crawl
        self._is_leased = is_leased
        self._feeds: list[_Feed] = []
        # Lines with the number of their feed: of requests in progress, of finished visits, and of no request.
        self._of_request: dict[Request, list[tuple[int, bytes]]] = {}
        self._of_visit: dict[_VisitKey, list[tuple[int, bytes]]] = {}
        self._loose: list[tuple[int, bytes]] = []
        self._loose_number = 0
        self._written: list[_Feed] = []

    @property
    def pending(self) -> bool:
        """Whether items wait that belong to no request."""
        return bool(self._loose)

    async def open(self, spider: Spider) -> None:
        """Take the feeds that can be written as part files from Scrapy's exporter."""
        manager: Any = self._crawler.extensions
        for exporter in [middleware for middleware in manager.middlewares if type(middleware) is FeedExporter]:
            for template, options in list(exporter.feeds.items()):
                if problem := obstacle(template, options, exporter.storages, exporter.exporters):
                    log.warning("Feed %s: %s.", template, problem)
                    continue
                uri = template % self._uri_params(spider, options["uri_params"])
                kind = exporter.exporters[options["format"]]
                accepts = exporter.filters[template].accepts
                self._feeds.append(_Feed(self._crawler, self._frontier.worker, uri, kind, options, accepts))
                del exporter.feeds[template]
        for feed in self._feeds:
            if feed.options.get("overwrite"):
                await self._overwrite(feed)
            else:
                await self._merge(feed)
            await feed.sink.open()
        if self._feeds:
            self._crawler.signals.connect(self._scraped, signal=signals.item_scraped)

    async def _overwrite(self, feed: _Feed) -> None:
        """Empty a file that is older than the crawl, unless the crawl has begun to write it: its items are in there."""
        facts = self._frontier.crawls.facts
        name = hashlib.blake2s(f"{platform.node()} {feed.path.absolute()}".encode(), digest_size=12).hexdigest()
        # The age of the file is read first: during the call, a file of this crawl would become too old.
        age = _age(feed.path)
        is_old = age > await store_seconds(self._frontier) - self._crawl.created_at
        await self._merge(feed)
        if is_old and name not in (await facts.read(self._crawl.id)).exports:
            os.truncate(feed.path, 0)
        await facts.add_export(self._crawl.id, name)

    def _uri_params(self, spider: Spider, function: Any) -> dict[str, Any]:
        """As Scrapy's, but all processes of a crawl have the same %(time)s, so that they share the file."""
        created = datetime.fromtimestamp(self._crawl.created_at, UTC)
        params = {name: getattr(spider, name) for name in dir(spider)}
        params["time"] = created.replace(microsecond=0).isoformat().replace(":", "-")
        params["batch_time"] = created.isoformat().replace(":", "-")
        params["batch_id"] = 1
        changed = load_object(function)(params, spider) if function else params
        return params if changed is None else changed

    def _scraped(self, item: Any, response: Any) -> None:
        request = getattr(response, "request", None)
        lines = self._of_request.setdefault(request, []) if request and self._is_leased(request) else self._loose
        for number, feed in enumerate(self._feeds):
            if feed.accepts(item):
                lines.append((number, feed.format.encode(item)))
                feed.items += 1

    def finish(self, request: Request, token: str, number: int) -> None:
        """A request is finished: its items belong to this visit."""
        if lines := self._of_request.pop(request, None):
            self._of_visit[token, number] = lines

    def discard(self, request: Request) -> None:
        """A request is made again, with its items."""
        self._of_request.pop(request, None)

    async def write(self, acks: AckBatch, visits: list[_VisitKey]) -> dict[str, list[RecordKey]]:
        """Make the items of visits durable before they are acknowledged. Returns the keys for `commit`."""
        by_feed: dict[int, list[FeedLine]] = {}
        keys: dict[str, list[RecordKey]] = {}
        for token, number in visits:
            page = (self._crawl.id, f"{token}/{number}")
            for index, (feed, line) in enumerate(self._of_visit.pop((token, number), ())):
                keys.setdefault(token, []).append(page)
                by_feed.setdefault(feed, []).append(FeedLine((page[0], f"{page[1]}#{index}"), line))
        loose, self._loose = self._loose, []
        for feed, line in loose:
            self._loose_number += 1
            key = (self._crawl.id, f"{self._frontier.worker}/start#{self._loose_number}")
            by_feed.setdefault(feed, []).append(FeedLine(key, line))
        self._written = [self._feeds[feed] for feed in by_feed]
        receipt = pack_written(acks, keys) if by_feed else b""
        for feed, lines in by_feed.items():
            await self._feeds[feed].sink.write(lines, receipt)  # type: ignore[arg-type]
        return keys

    async def commit(self, lost: list[str], keys: dict[str, list[RecordKey]]) -> None:
        """The visits are acknowledged, except those of lost leases."""
        rejected = list(dict.fromkeys(rejected_keys(lost, keys)))
        for feed in self._written:
            await feed.sink.commit(rejected)

    async def run(self) -> None:
        """Merge finished parts while the crawl runs."""
        while self._feeds:
            await asyncio.sleep(_MERGE_SECONDS)
            for feed in self._feeds:
                try:
                    await self._merge(feed)
                except ShoalError as error:
                    log.error("%s Retrying.", error)

    async def _merge(self, feed: _Feed) -> None:
        if parts_folder(feed.path).exists():
            await merge_feed(feed.path, feed.format.frame, replay=partial(replay, self._frontier.void_batch))

    async def close(self) -> None:
        for feed in self._feeds:
            await feed.sink.close()
            await self._merge(feed)
            if feed.options["store_empty"]:
                write_empty(feed.path, feed.format.frame)
            name = feed.options["format"]
            log.info("Stored %s feed (%d items of this process) in: %s", name, feed.items, feed.uri)
            self._crawler.stats.inc_value("feedexport/success_count/FileFeedStorage")
            slot = SimpleNamespace(
                uri=feed.uri, format=name, itemcount=feed.items, batch_id=1, feed_options=feed.options
            )
            self._crawler.signals.send_catch_log(signals.feed_slot_closed, slot=slot)


def _age(path: Path) -> float:
    """Seconds since a file was written; -1 if it does not exist. To be compared with an age on another clock."""
    return time.time() - path.stat().st_mtime if path.exists() else -1.0
