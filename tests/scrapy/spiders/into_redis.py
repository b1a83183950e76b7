"""Items into a Redis list."""

from tests.scrapy.spiders.tree import Tree

INTO_REDIS = {"ITEM_PIPELINES": {"shoal.scrapy.RedisPipeline": 300}}


class IntoRedis(Tree):
    name = "into_redis"
    custom_settings = INTO_REDIS


del Tree
