"""Pages that only a browser can read, through scrapy-playwright."""

import scrapy

from tests.scrapy.pipelines import ITEM_PIPELINE

_HANDLER = "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"
BROWSING = {
    **ITEM_PIPELINE,
    "DOWNLOAD_HANDLERS": {"http": _HANDLER, "https": _HANDLER},
    "PLAYWRIGHT_LAUNCH_OPTIONS": {"executable_path": "/usr/bin/chromium", "args": ["--no-sandbox"]},
}


class Browsing(scrapy.Spider):
    name = "browsing"
    custom_settings = BROWSING

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.url = start

    async def start(self):
        yield scrapy.Request(self.url, meta={"playwright": True})

    def parse(self, response):
        yield {"key": response.url, "text": response.css("#made::text").get()}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, meta={"playwright": True})
