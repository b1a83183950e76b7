"""The shape of the public project booksbot: lists of books with a next page, and a page for each book."""

import scrapy

from tests.scrapy.pipelines import ITEM_PIPELINE


class Catalogue(scrapy.Spider):
    name = "catalogue"
    custom_settings = ITEM_PIPELINE

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]

    def parse(self, response):
        for link in response.css("article.book a::attr(href)").getall():
            yield scrapy.Request(response.urljoin(link), callback=self.parse_book)
        following = response.css("li.next a::attr(href)").get()
        if following:
            yield scrapy.Request(response.urljoin(following), callback=self.parse)

    def parse_book(self, response):
        yield {
            "key": response.css("h1::text").get(),
            "price": response.xpath("//th[text()='Price']/following-sibling::td/text()").get(),
        }
