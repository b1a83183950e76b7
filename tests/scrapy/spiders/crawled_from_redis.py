"""A CrawlSpider of a project on scrapy-redis: rules, and start URLs from Redis."""

from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import Rule
from scrapy_redis.spiders import RedisCrawlSpider

from tests.scrapy.pipelines import ITEM_PIPELINE


class Crawled(RedisCrawlSpider):  # type: ignore[misc] # scrapy-redis has no types
    name = "crawled"
    redis_key = "crawled:start_urls"
    custom_settings = ITEM_PIPELINE
    rules = (Rule(LinkExtractor(allow=r"/p/"), callback="parse_page", follow=True),)

    def parse_page(self, response):
        yield {"key": response.url, "title": response.css("title::text").get()}
