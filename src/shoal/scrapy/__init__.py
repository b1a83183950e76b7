"""Shoal as the scheduler of Scrapy projects: the settings change, the spiders stay. See docs/guides/scrapy.md."""

from shoal.scrapy.dupefilter import DupeFilter
from shoal.scrapy.pipeline import RedisPipeline
from shoal.scrapy.scheduler import Scheduler
from shoal.scrapy.spiders import RedisCrawlSpider, RedisSpider
from shoal.scrapy.stats import RedisStatsCollector

__all__ = ["DupeFilter", "RedisCrawlSpider", "RedisPipeline", "RedisSpider", "RedisStatsCollector", "Scheduler"]
