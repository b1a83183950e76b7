"""Follows every link and keeps every page."""

import scrapy

from tests.scrapy.pipelines import ITEM_PIPELINE


class Tree(scrapy.Spider):
    name = "tree"
    custom_settings = ITEM_PIPELINE

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]

    def parse(self, response):
        yield {"key": response.url, "title": response.css("title::text").get()}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, callback=self.page)

    def page(self, response):
        return self.parse(response)
