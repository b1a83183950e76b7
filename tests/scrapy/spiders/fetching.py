"""Every callback downloads something from another host and waits for it, in a process that never counts as stuck."""

import scrapy
from scrapy.utils.defer import maybe_deferred_to_future

from shoal.scrapy import lease_feed
from tests.scrapy.pipelines import ITEM_PIPELINE

lease_feed._FULL_SECONDS = 3600.0
SETTINGS = {**ITEM_PIPELINE, "CONCURRENT_REQUESTS": 1}


class Fetching(scrapy.Spider):
    name = "fetching"
    custom_settings = SETTINGS

    def __init__(self, start, elsewhere, **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]
        self.elsewhere = elsewhere

    async def parse(self, response):
        engine = self.crawler.engine
        request = scrapy.Request(f"{self.elsewhere}{response.url.rpartition('/')[2]}")
        if hasattr(engine, "download_async"):
            other = await engine.download_async(request)
        else:
            other = await maybe_deferred_to_future(engine.download(request))
        yield {"key": response.url, "other": other.url}
        for request in response.follow_all(css="a"):
            yield request
