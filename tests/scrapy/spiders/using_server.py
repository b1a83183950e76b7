"""Stores what it has seen in Redis, with the client of scrapy-redis' spiders."""

from shoal.scrapy import RedisSpider


class UsingServer(RedisSpider):
    name = "using_server"

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.server.set(f"{cls.name}:began", 1)
        return spider

    def parse(self, response):
        self.server.rpush(f"{self.name}:done", response.url)
