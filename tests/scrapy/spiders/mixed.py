"""Old and new ways of a spider in one: async start, async generators, awaited downloads, errbacks and files."""

import asyncio

import scrapy
from scrapy.utils.defer import maybe_deferred_to_future

MIXED = {"ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1, "tests.scrapy.pipelines.JsonLinesPipeline": 2}}


class Mixed(scrapy.Spider):
    name = "mixed"
    custom_settings = MIXED

    def __init__(self, site, **arguments):
        super().__init__(**arguments)
        self.site = site

    async def start(self):
        await asyncio.sleep(0)
        yield scrapy.Request(f"{self.site}/generator")
        yield scrapy.Request(f"{self.site}/plain", callback=self.plain)
        yield scrapy.Request(f"{self.site}/missing", callback=self.plain, errback=self.failed)

    async def parse(self, response):
        engine = self.crawler.engine
        request = scrapy.Request(f"{self.site}/awaited")
        if hasattr(engine, "download_async"):
            other = await engine.download_async(request)
        else:
            other = await maybe_deferred_to_future(engine.download(request))
        yield {"key": "generator", "awaited": other.status}
        yield response.follow("/returned", callback=self.returned)

    async def returned(self, response):
        await asyncio.sleep(0)
        return {"key": "returned"}

    def plain(self, response):
        yield {"key": "plain", "file_urls": [f"{self.site}/file"]}

    def failed(self, failure):
        yield {"key": "failed", "status": failure.value.response.status}
