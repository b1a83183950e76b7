"""Requests its start page until it is ready: by retries, by redirects, or by yielding the request again."""

import scrapy

from tests.scrapy.pipelines import ITEM_PIPELINE


class Waiting(scrapy.Spider):
    name = "waiting"
    custom_settings = ITEM_PIPELINE

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]

    def parse(self, response):
        if response.css("title::text").get() == "Not yet":
            yield response.request.replace(dont_filter=True)
        else:
            yield {"key": response.url}
