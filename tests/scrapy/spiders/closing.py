"""Closes while a reply with the lease of the second host is on its way."""

import asyncio

import scrapy

from shoal.frontier import Frontier
from tests.scrapy.pipelines import ITEM_PIPELINE

_lease = Frontier.lease


class Closing(scrapy.Spider):
    name = "closing"
    custom_settings = ITEM_PIPELINE

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]
        self.hosts: set[str] = set()
        spider = self

        async def lease(self, **request):
            leases = await _lease(self, **request)
            spider.hosts |= {lease.host for lease in leases}
            if leases and len(spider.hosts) == 2:
                _ = spider.crawler.engine.close_spider(spider, "closed during a lease")
                await asyncio.sleep(0.5)
            return leases

        Frontier.lease = lease  # type: ignore[method-assign]

    def parse(self, response):
        yield {"key": response.url}
        yield from response.follow_all(css="a")
