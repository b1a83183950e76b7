"""The arguments that a spider was created with, by `scrapy crawl -a`, CrawlerProcess.crawl or a service.

Scrapy does not keep them. Its Crawler passes them to the spider, so this module records them there.
"""

from __future__ import annotations

import functools
import sys
from typing import Any
from weakref import WeakKeyDictionary

from scrapy import Spider
from scrapy.crawler import Crawler

_recorded: WeakKeyDictionary[Crawler, dict[str, Any]] = WeakKeyDictionary()


def arguments_of(crawler: Crawler) -> dict[str, Any]:
    """A spider's arguments by name; positional ones by number. Names with _ belong to a job, e.g. scrapyd's _job."""
    arguments = _recorded.get(crawler)
    if arguments is None:
        # Something other than Scrapy's Crawler created the spider.
        arguments = of_command_line(sys.argv[1:])
    return {name: value for name, value in arguments.items() if not name.startswith("_")}


def of_command_line(argv: list[str]) -> dict[str, Any]:
    """The spider arguments (-a NAME=VALUE) of a Scrapy command."""
    arguments = {}
    for index, word in enumerate(argv):
        pair = argv[index + 1] if word == "-a" and index + 1 < len(argv) else word[2:] if word.startswith("-a") else ""
        name, separator, value = pair.partition("=")
        if separator:
            arguments[name] = value
    return arguments


def _record(crawler: Crawler, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _recorded[crawler] = {**{str(number): value for number, value in enumerate(args)}, **kwargs}


def _patch_crawler() -> None:
    create_spider = Crawler._create_spider

    @functools.wraps(create_spider)
    def recording(self: Crawler, *args: Any, **kwargs: Any) -> Spider:
        _record(self, args, kwargs)
        return create_spider(self, *args, **kwargs)

    Crawler._create_spider = recording  # type: ignore[method-assign]
    # In a project that sets only SCHEDULER, this module is imported during the first `crawl`, after its spider exists.
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        known = frame.f_locals
        if frame.f_code.co_name in ("crawl", "crawl_async") and isinstance(known.get("self"), Crawler):
            _record(known["self"], known.get("args", ()), known.get("kwargs", {}))
            return


_patch_crawler()
