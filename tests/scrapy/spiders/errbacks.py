"""Requests the URLs it is given, and stores the result of each: a page, or the cause that the errback received."""

import scrapy

from tests.scrapy.pipelines import ITEM_PIPELINE


class Errbacks(scrapy.Spider):
    name = "errbacks"
    custom_settings = ITEM_PIPELINE

    def __init__(self, urls, **arguments):
        super().__init__(**arguments)
        self.urls = urls.split(",")

    async def start(self):
        for url in self.urls:
            meta = {"dont_obey_robotstxt": True} if url.endswith("?anyway") else {}
            headers = {"User-Agent": "Own/1.0"} if url.endswith("?own") else {}
            yield scrapy.Request(url, errback=self.failed, meta=meta, headers=headers)

    def parse(self, response):
        yield {"key": response.url, "cause": response.status}

    def failed(self, failure):
        yield {"key": failure.request.url, "cause": failure.type.__name__}
