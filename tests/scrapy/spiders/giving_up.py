"""Requests pages of every status, some of which it handles itself."""

import scrapy

from tests.scrapy.pipelines import ITEM_PIPELINE


class GivingUp(scrapy.Spider):
    name = "giving_up"
    custom_settings = ITEM_PIPELINE

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.base = start

    async def start(self):
        for path in ("503", "404", "200"):
            yield scrapy.Request(f"{self.base}/{path}")
        yield scrapy.Request(f"{self.base}/500", errback=self.failed)
        yield scrapy.Request(f"{self.base}/502", meta={"handle_httpstatus_list": range(500, 600)})

    def parse(self, response):
        yield {"key": f"page {response.status}"}

    def failed(self, failure):
        yield {"key": f"errback {failure.value.response.status}"}
