"""The same worker on scrapy-redis' own queue and dupefilter, whose pop is destructive: the control of the kill test."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import redis
import scrapy
from scrapy_redis.dupefilter import RFPDupeFilter
from scrapy_redis.queue import FifoQueue

from tests.chaos.notes import Notes
from tests.chaos.site import Site

# Scrapy takes 16 requests at a time out of the queue by default.
_TAKEN_AT_ONCE = 16
_IDLE_SECONDS = 1.0


def run(options: argparse.Namespace) -> None:
    site, sink = Site(options.pages, options.hosts), Notes(options.sink)
    server = redis.Redis(port=options.port)
    queue = FifoQueue(server, scrapy.Spider(name="control"), "%(spider)s:requests")
    seen = RFPDupeFilter(server, "control:dupefilter")

    def push(page: int) -> None:
        request = scrapy.Request(site.url(page))
        if not seen.request_seen(request):
            queue.push(request)

    push(0)
    idle_since = time.monotonic()
    while time.monotonic() < idle_since + _IDLE_SECONDS:
        taken = [request for _ in range(_TAKEN_AT_ONCE) if (request := queue.pop()) is not None]
        for request in taken:
            time.sleep(options.request)
            for link in site.links(site.page(request.url)):
                push(link)
            sink.write("record", request.url)
        if taken:
            idle_since = time.monotonic()
        else:
            time.sleep(0.02)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sink", type=Path, required=True)
    parser.add_argument("--request", type=float, required=True)
    for name in ("port", "pages", "hosts"):
        parser.add_argument(f"--{name}", type=int, required=True)
    run(parser.parse_args(sys.argv[1:]))
