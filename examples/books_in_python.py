"""The same without a command: iterate over the records of a crawl."""

from books import Books

import shoal

settings = {"fetch.allow_networks": "127.0.0.0/8"}
for item in shoal.crawl(spider=Books, delay_seconds=0.2, settings=settings):
    print(item)
