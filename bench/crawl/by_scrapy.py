"""Scrapy, alone or with scrapy-redis or Shoal, as a program: `python -m bench.crawl.by_scrapy OUT [REDIS] SEED...`.

Set for speed: no log, no robots.txt, no cookies, no delays, 64 requests at once. REDIS is a unix:// URL. If it is
passed, the seeds are read from there, and processes with the same URL share the crawl. With the prefix shoal+, the
spider of scrapy-redis runs on Shoal: only settings differ. Title, text and links are extracted with Scrapy's own
selectors and link extractor and their defaults; the text by the cheapest XPath, so it includes scripts. On pages with
many links to parts of pages, a crawl would take a third less time if fragments were removed first (`process_value`),
which Scrapy does not do by default.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scrapy import Spider
from scrapy.crawler import CrawlerProcess
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor
from scrapy_redis.spiders import RedisSpider

KEY = "bench:seeds"
SETTINGS = {
    "LOG_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "LOGSTATS_INTERVAL": 0,
    "ROBOTSTXT_OBEY": False,
    "COOKIES_ENABLED": False,
    "RETRY_ENABLED": False,
    "AUTOTHROTTLE_ENABLED": False,
    "DOWNLOAD_DELAY": 0,
    "CONCURRENT_REQUESTS": 64,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 64,
}
REDIS_SETTINGS = {
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    "SCHEDULER_PERSIST": True,
    # A process that gets no URL for this long is done. nginx's log does not include this time.
    "MAX_IDLE_TIME_BEFORE_CLOSE": 3,
}
SHOAL_SETTINGS = {
    "SCHEDULER": "shoal.scrapy.Scheduler",
    "DUPEFILTER_CLASS": "shoal.scrapy.DupeFilter",
    "MAX_IDLE_TIME_BEFORE_CLOSE": 3,
}


class Reads:
    extractor: LinkExtractor
    out: str
    read = 0.0

    def parse(self, response: Response) -> Iterator[Any]:
        if not isinstance(response, HtmlResponse):
            return
        links = self.extractor.extract_links(response)
        yield {
            "url": response.url,
            "status": response.status,
            "title": response.xpath("//title/text()").get(),
            "text": response.xpath("string(//body)").get(),
            "links": len(links),
        }
        for link in links:
            yield response.follow(link)
        self.read = time.time()

    def closed(self, reason: str) -> None:
        Path(f"{self.out}.read").write_text(str(self.read))


class Alone(Reads, Spider):
    name = "bench"


class Shared(Reads, RedisSpider):  # type: ignore[misc] # scrapy-redis has no types
    name = "bench"
    redis_key = KEY


def main(out: str, *seeds: str) -> None:
    settings = {**SETTINGS, "FEEDS": {out: {"format": "jsonlines"}}}
    spider: type[Spider] = Alone
    if seeds[0].startswith(("unix://", "shoal+unix://")):
        url = seeds[0].removeprefix("shoal+")
        settings |= {**(REDIS_SETTINGS if url == seeds[0] else SHOAL_SETTINGS), "REDIS_URL": url}
        spider, seeds = Shared, seeds[1:]
    process = CrawlerProcess(settings)
    parts = [urlsplit(seed) for seed in seeds]
    extractor = LinkExtractor(allow_domains=[part.netloc for part in parts])
    # Not an argument of the spider: with other arguments it would be another crawl.
    Reads.out = out
    own = {"start_urls": list(seeds)} if spider is Alone else {}
    _ = process.crawl(spider, extractor=extractor, allowed_domains=[part.hostname for part in parts], **own)
    process.start()


if __name__ == "__main__":
    main(*sys.argv[1:])
