"""Follows links, in a process whose timers for the end of a crawl and for leases last an hour: events must suffice."""

import scrapy

from shoal.scrapy import crawl_end, lease_feed
from tests.scrapy.pipelines import ITEM_PIPELINE

crawl_end._CHECK_SECONDS = crawl_end._MAX_CHECK_SECONDS = 3600.0
lease_feed._WAIT_SECONDS = 3600.0


class WithoutTimers(scrapy.Spider):
    name = "without_timers"
    custom_settings = ITEM_PIPELINE

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]

    def parse(self, response):
        yield {"key": response.url}
        yield from response.follow_all(css="a")
