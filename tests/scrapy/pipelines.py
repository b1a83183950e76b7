"""Item pipelines of the tests: a file of JSON lines, a table by the key of the items, and a Redis set.

The file has a line for each time an item passed the pipeline. The table is what a project should use if an item may
come again after a kill.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from typing import Any

from itemadapter import ItemAdapter

from shoal.scrapy.pipeline import RedisPipeline


class JsonLinesPipeline:
    def __init__(self, crawler: Any) -> None:
        self._file = os.open(crawler.settings["ITEMS_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._slow = crawler.settings.getfloat("PIPELINE_SECONDS")

    @classmethod
    def from_crawler(cls, crawler: Any) -> JsonLinesPipeline:
        return cls(crawler)

    async def process_item(self, item: Any, spider: Any = None) -> Any:
        if self._slow:
            await asyncio.sleep(self._slow)
        os.write(self._file, json.dumps(ItemAdapter(item).asdict(), default=repr).encode() + b"\n")
        return item


class KeyedPipeline:
    def __init__(self, crawler: Any) -> None:
        self._database = sqlite3.connect(f"{crawler.settings['ITEMS_FILE']}.db", timeout=30, isolation_level=None)
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE IF NOT EXISTS items (key TEXT PRIMARY KEY, title TEXT)")

    @classmethod
    def from_crawler(cls, crawler: Any) -> KeyedPipeline:
        return cls(crawler)

    def process_item(self, item: Any, spider: Any = None) -> Any:
        self._database.execute("INSERT OR REPLACE INTO items VALUES (:key, :title)", item)
        return item


class SetPipeline(RedisPipeline):
    """A pipeline as projects write it for scrapy-redis."""

    def _process_item(self, item: Any, spider: Any) -> Any:
        self.server.sadd(f"{spider.name}:set", item["key"])
        return item


ITEM_PIPELINE = {"ITEM_PIPELINES": {"tests.scrapy.pipelines.JsonLinesPipeline": 300}}
