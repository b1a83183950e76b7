"""What a spider was given when it was made: by `scrapy crawl -a`, by CrawlerProcess.crawl, by a service.

Scrapy keeps that nowhere. Its Crawler passes it on to the spider, so it is noted there.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import sys
from typing import Any
from weakref import WeakKeyDictionary

from scrapy import Spider
from scrapy.crawler import Crawler

_noted: WeakKeyDictionary[Crawler, dict[str, Any]] = WeakKeyDictionary()
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def given(crawler: Crawler) -> dict[str, Any]:
    """A spider's arguments by name, those without one by their number. Names with _ are of a job, as scrapyd's _job."""
    found = _noted.get(crawler)
    if found is None:
        # Something made the spider that is not Scrapy's Crawler.
        found = of_command_line(sys.argv[1:])
    return {name: value for name, value in found.items() if not name.startswith("_")}


def of_command_line(argv: list[str]) -> dict[str, Any]:
    """Spider arguments of Scrapy's commands."""
    found = {}
    for place, word in enumerate(argv):
        pair = argv[place + 1] if word == "-a" and place + 1 < len(argv) else word[2:] if word.startswith("-a") else ""
        name, mark, value = pair.partition("=")
        if mark:
            found[name] = value
    return found


def digest(arguments: dict[str, Any]) -> str:
    """Ten hex digits that tell arguments apart, the same in every process; a password among them does not show."""
    told = "\0".join(f"{name}={_text(value)}" for name, value in sorted(arguments.items()))
    return hashlib.sha1(told.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()[:10]


def _text(value: Any) -> str:
    """A number is what it would be on a command line. An object is its repr, without its address in this process."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, sort_keys=True, default=_plain)
    except (TypeError, ValueError, RecursionError):
        return _ADDRESS.sub("", repr(value))


def _plain(value: Any) -> list[str] | str:
    return sorted(map(_text, value)) if isinstance(value, set | frozenset) else _ADDRESS.sub("", repr(value))


def _note(crawler: Crawler, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    _noted[crawler] = {**{str(number): value for number, value in enumerate(args)}, **kwargs}


def _watch() -> None:
    make = Crawler._create_spider

    @functools.wraps(make)
    def making(self: Crawler, *args: Any, **kwargs: Any) -> Spider:
        _note(self, args, kwargs)
        return make(self, *args, **kwargs)

    Crawler._create_spider = making  # type: ignore[method-assign]
    # A project that names only SCHEDULER loads this in the middle of its first `crawl`, after its spider was made.
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        known = frame.f_locals
        if frame.f_code.co_name in ("crawl", "crawl_async") and isinstance(known.get("self"), Crawler):
            _note(known["self"], known.get("args", ()), known.get("kwargs", {}))
            return


_watch()
