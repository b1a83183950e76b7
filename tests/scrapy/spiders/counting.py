"""Counts itself in the statistics, and keeps the count of all processes once it is two. Closes only then."""

import asyncio

import scrapy
from scrapy import signals
from scrapy.exceptions import DontCloseSpider

from tests.scrapy.pipelines import ITEM_PIPELINE


class Counting(scrapy.Spider):
    name = "counting"
    custom_settings = ITEM_PIPELINE
    total = 0

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.url = start

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.wait, signal=signals.spider_idle)
        return spider

    async def start(self):
        self.crawler.stats.inc_value("processes")
        while self.crawler.stats.get_value("processes") < 2:  # noqa: ASYNC110 - statistics have no event
            await asyncio.sleep(0.05)
        # As an item of this process: start() runs in each.
        yield {"key": "processes", "total": self.crawler.stats.get_value("processes")}
        yield scrapy.Request(self.url)

    def wait(self):
        if self.crawler.stats.get_value("processes") < 2:
            raise DontCloseSpider

    def parse(self, response):
        yield {"key": response.url}
