"""The pipeline of the tests: a line of JSON for each item, appended at once, so that what is there has passed it."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from itemadapter import ItemAdapter


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


KEPT = {"ITEM_PIPELINES": {"tests.scrapy.keeping.Keeping": 300}}
