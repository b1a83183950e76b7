"""Yields large requests: a form, data in meta, and a long URL. Stores the result of each of them."""

import scrapy

from tests.scrapy.pipelines import ITEM_PIPELINE


class Large(scrapy.Spider):
    name = "large"
    custom_settings = ITEM_PIPELINE

    def __init__(self, start, size, **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]
        self.size = int(size)

    def parse(self, response):
        yield {"key": "start"}
        form = {"__VIEWSTATE": "v" * self.size}
        yield scrapy.FormRequest(response.urljoin("/form"), formdata=form, callback=self.page)
        yield scrapy.Request(response.urljoin("/meta"), meta={"html": "<p>" * (self.size // 3)}, callback=self.page)
        for _ in range(2):
            yield response.follow("/long?q=" + "x" * 9000, callback=self.page)
            yield response.follow("/forbidden?q=" + "x" * 9000, callback=self.page)

    def page(self, response):
        size = len(response.request.body) + len(response.meta.get("html", "")) + len(response.url)
        yield {"key": response.url[:60].partition("?")[0].rpartition("/")[2], "size": size}
