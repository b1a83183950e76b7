"""Fills in a login form and reads what is behind it."""

import scrapy

from tests.scrapy.pipelines import ITEM_PIPELINE


class Login(scrapy.Spider):
    name = "login"
    custom_settings = ITEM_PIPELINE

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]

    def parse(self, response):
        yield scrapy.FormRequest.from_response(
            response, formdata={"user": "ann", "password": "secret"}, callback=self.inside
        )

    def inside(self, response):
        yield {"key": response.url, "title": response.css("title::text").get()}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, callback=self.inside)
