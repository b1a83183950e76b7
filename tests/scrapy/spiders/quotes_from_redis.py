"""The shape of a public tutorial of scrapy-redis: workers that read start URLs, and close after an idle time."""

from scrapy_redis.spiders import RedisSpider

from tests.scrapy.pipelines import ITEM_PIPELINE


class QuotesFromRedis(RedisSpider):  # type: ignore[misc] # scrapy-redis has no types
    name = "quotes_from_redis"
    redis_key = "quotes_queue:start_urls"
    redis_batch_size = 1
    max_idle_time = 1
    custom_settings = ITEM_PIPELINE

    def parse(self, response):
        for quote in response.css("div.quote"):
            yield {"key": quote.css("span.text::text").get(), "author": quote.css("small.author::text").get()}
        following = response.css("li.next a::attr(href)").get()
        if following is not None:
            yield response.follow(following, callback=self.parse)
