"""Start URLs from Redis, with Shoal's own spider."""

from shoal.scrapy import RedisSpider
from tests.scrapy.pipelines import ITEM_PIPELINE


class Feeding(RedisSpider):
    name = "feeding"
    custom_settings = ITEM_PIPELINE

    def parse(self, response):
        request = response.request
        yield {
            "key": response.url, "method": request.method, "body": request.body.decode(),
            "meta": request.meta.get("tag"), "header": request.headers.get("X-Tag", b"").decode(),
            "cookies": request.headers.get("Cookie", b"").decode(), "priority": request.priority,
        }  # fmt: skip
