"""Writes a byte every twentieth of a second, for as long as the reactor runs."""

import asyncio
from pathlib import Path

from scrapy import signals

from tests.scrapy.spiders.tree import Tree


class Ticking(Tree):
    name = "ticking"

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.opened, signal=signals.spider_opened)
        return spider

    def opened(self):
        self.ticks = asyncio.ensure_future(self.tick())

    async def tick(self):
        with Path(self.settings["TICKS"]).open("ab", buffering=0) as file:
            while True:
                file.write(b".")
                await asyncio.sleep(0.05)


del Tree
