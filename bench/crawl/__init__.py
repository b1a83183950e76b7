"""Whole crawlers on the same real pages: Shoal, Scrapy, scrapy-redis, Crawlee and wget2."""
