"""Every page has files, which Scrapy's own pipeline downloads before the item is kept."""

import scrapy

FILES = {"ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1, "tests.scrapy.pipelines.JsonLinesPipeline": 2}}


class WithFiles(scrapy.Spider):
    name = "with_files"
    custom_settings = FILES

    def __init__(self, start, **arguments):
        super().__init__(**arguments)
        self.start_urls = start.split(",")

    def parse(self, response):
        yield {"key": response.url, "file_urls": response.css("img::attr(src)").getall()}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)
