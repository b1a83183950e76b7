"""Logs in through its own start_requests before it reads start URLs from Redis, as projects on scrapy-redis do."""

from scrapy import Request
from scrapy_redis.spiders import RedisSpider

from tests.scrapy.pipelines import ITEM_PIPELINE


class LoggingIn(RedisSpider):  # type: ignore[misc] # scrapy-redis has no types
    name = "logging_in"
    redis_key = "%(name)s:urls"
    custom_settings = ITEM_PIPELINE

    def start_requests(self):
        yield Request(self.settings["LOGIN"], callback=self.inside, dont_filter=True)
        yield from super().start_requests()

    def inside(self, response):
        yield {"key": "logged in"}

    def parse(self, response):
        yield {"key": response.url}
