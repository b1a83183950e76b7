"""Which Scrapy command this process runs. Commands that only inspect a page do not take part in a crawl."""

from __future__ import annotations

import sys
from pathlib import Path

_INSPECTING = frozenset(("check", "fetch", "parse", "shell", "view"))


def is_inspecting(words: list[str] | None = None) -> bool:
    """Whether this process runs e.g. `scrapy shell`. Reads sys.orig_argv, as Scrapy changes sys.argv."""
    words = sys.orig_argv[1:] if words is None else words
    for index, word in enumerate(words):
        # scrapy, scrapy.exe, or scrapy.cmdline after -m.
        if Path(word).stem == "scrapy":
            return next((word for word in words[index + 1 :] if not word.startswith("-")), "") in _INSPECTING
    return False
