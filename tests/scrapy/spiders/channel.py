"""Yields its argument `channel_id` with the URL of every page."""

import scrapy

from tests.scrapy.pipelines import ITEM_PIPELINE


class Channel(scrapy.Spider):
    name = "channel"
    custom_settings = ITEM_PIPELINE

    def __init__(self, start, channel_id, **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]
        self.channel_id = channel_id

    def parse(self, response):
        yield {"key": f"{self.channel_id} {response.url}"}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)
