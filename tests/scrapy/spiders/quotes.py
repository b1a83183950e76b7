"""The shape of the public project quotesbot: several items on a page, and the next page by its link."""

import scrapy

from tests.scrapy.pipelines import ITEM_PIPELINE


class Quotes(scrapy.Spider):
    name = "quotes"
    custom_settings = ITEM_PIPELINE

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]

    def parse(self, response):
        for quote in response.css("div.quote"):
            yield {
                "key": quote.css("span.text::text").get(),
                "author": quote.xpath(".//small[@class='author']/text()").get(),
                "tags": quote.css("a.tag::text").getall(),
            }
        following = response.css("li.next a::attr(href)").get()
        if following is not None:
            yield scrapy.Request(response.urljoin(following))
