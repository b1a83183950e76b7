"""Follows links, in a process that sends no heartbeat while a test lasts: its last check must learn of a stop."""

from shoal.scrapy import crawl_end
from tests.scrapy.spiders.tree import Tree as Spider

crawl_end._HEARTBEAT_SECONDS = 3600.0


class WithoutHeartbeats(Spider):
    name = "without_heartbeats"
