"""Chooses Scrapy's slot itself, for a page that is retried and one that is redirected."""

import scrapy

from tests.scrapy.pipelines import ITEM_PIPELINE


class Slotted(scrapy.Spider):
    name = "slotted"
    custom_settings = ITEM_PIPELINE

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.base = start

    async def start(self):
        for path in ("flaky", "moved"):
            yield scrapy.Request(f"{self.base}/{path}", meta={"download_slot": "mine"})
        yield scrapy.Request(f"{self.base}/plain")

    def parse(self, response):
        yield {"key": response.url.removeprefix(self.base), "slot": response.meta["download_slot"]}
        if response.url.endswith("/plain"):
            # As many projects do.
            yield response.follow("/next", meta=response.meta)
