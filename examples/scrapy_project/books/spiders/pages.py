"""Every page of a site: scrapy crawl pages -a start=https://books.example/"""

from urllib.parse import urlsplit

from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class Pages(CrawlSpider):
    name = "pages"
    rules = (Rule(LinkExtractor(), callback="parse_page", follow=True),)

    def __init__(self, start="http://127.0.0.1:8000/", **arguments):
        super().__init__(**arguments)
        self.start_urls = [start]
        self.allowed_domains = [urlsplit(start).hostname]

    def parse_start_url(self, response, **arguments):
        return self.parse_page(response)

    def parse_page(self, response):
        return {"url": response.url, "title": response.css("title::text").get()}
