"""Follows every link of what comes in under two keys."""

from shoal.scrapy import RedisSpider
from tests.scrapy.pipelines import ITEM_PIPELINE


class TreeFromRedis(RedisSpider):
    name = "tree_from_redis"
    redis_key = ("trees", "trees:more")
    custom_settings = ITEM_PIPELINE

    def parse(self, response):
        yield {"key": response.url}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, callback=self.parse)
