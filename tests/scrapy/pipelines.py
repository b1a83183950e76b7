"""Pipelines of the tests: a line of JSON for each item, appended at once; and a table by the key of the items.

What is in the file has passed the pipeline, as often as it is there. The table is what a project should have, where an
item may come again after a kill.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from typing import Any

from itemadapter import ItemAdapter

from shoal.scrapy.pipeline import RedisPipeline


class Keeping:
    def __init__(self, crawler: Any) -> None:
        self._file = os.open(crawler.settings["KEPT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._slow = crawler.settings.getfloat("KEEPING_SECONDS")

    @classmethod
    def from_crawler(cls, crawler: Any) -> Keeping:
        return cls(crawler)

    async def process_item(self, item: Any, spider: Any = None) -> Any:
        if self._slow:
            await asyncio.sleep(self._slow)
        os.write(self._file, json.dumps(ItemAdapter(item).asdict(), default=repr).encode() + b"\n")
        return item


class Keyed:
    def __init__(self, crawler: Any) -> None:
        self._database = sqlite3.connect(f"{crawler.settings['KEPT']}.db", timeout=30, isolation_level=None)
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE IF NOT EXISTS items (key TEXT PRIMARY KEY, title TEXT)")

    @classmethod
    def from_crawler(cls, crawler: Any) -> Keyed:
        return cls(crawler)

    def process_item(self, item: Any, spider: Any = None) -> Any:
        self._database.execute("INSERT OR REPLACE INTO items VALUES (:key, :title)", item)
        return item


class IntoSet(RedisPipeline):
    """As projects write it for scrapy-redis."""

    def _process_item(self, item: Any, spider: Any) -> Any:
        self.server.sadd(f"{spider.name}:set", item["key"])
        return item


KEPT = {"ITEM_PIPELINES": {"tests.scrapy.pipelines.Keeping": 300}}
