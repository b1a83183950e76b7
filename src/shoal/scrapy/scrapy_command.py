"""Scrapy's commands that look at a page or two: they are no crawl, and neither add to the fleet's nor take from it."""

from __future__ import annotations

import sys
from pathlib import Path

_LOOKING = frozenset(("check", "fetch", "parse", "shell", "view"))


def is_looking(words: list[str] | None = None) -> bool:
    """Whether this process is `scrapy shell` or such, by its command line: Scrapy takes the command out of sys.argv."""
    words = sys.orig_argv[1:] if words is None else words
    for place, word in enumerate(words):
        # scrapy, scrapy.exe, or scrapy.cmdline after -m.
        if Path(word).stem == "scrapy":
            return next((one for one in words[place + 1 :] if not one.startswith("-")), "") in _LOOKING
    return False
