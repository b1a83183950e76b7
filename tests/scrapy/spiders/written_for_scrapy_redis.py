"""A spider of a project on scrapy-redis, unchanged."""

from scrapy import Request
from scrapy_redis.spiders import RedisSpider

from tests.scrapy.pipelines import ITEM_PIPELINE


class Written(RedisSpider):  # type: ignore[misc] # scrapy-redis has no types
    name = "written"
    redis_key = "%(name)s:urls"
    custom_settings = ITEM_PIPELINE

    def make_request_from_data(self, data):
        return [Request(data.decode(), dont_filter=True, meta={"pushed": True})]

    def parse(self, response):
        yield {"key": response.url, "pushed": response.meta.get("pushed", False)}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)
