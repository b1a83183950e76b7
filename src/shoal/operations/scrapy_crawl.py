"""Crawls of Scrapy projects: their names, their specs, and how one is submitted.

Must not import Scrapy, so that commands work where Scrapy is not installed. shoal.scrapy works on such crawls.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from shoal.errors import InvalidInput
from shoal.frontier import Frontier
from shoal.frontier.inspect import generations
from shoal.model import validation
from shoal.model.crawl import Crawl
from shoal.model.limits import Limits

_MAX_NAME = 100
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_GENERATION = re.compile(r"@[0-9]+\Z")
_SPIDER = re.compile(r"[^\s\0]{1,200}\Z")
# The argument values of a submitted crawl, for the processes that run it.
VALUES = "scrapy_values"


def crawl_name(spider: str, arguments: dict[str, Any]) -> str:
    """The name of a spider's crawl. Values of arguments are hashed, because one may be a password."""
    return safe_name(".".join([spider, *sorted(arguments)]) + (f"-{digest(arguments)}" if arguments else ""))


def generation_id(name: str, generation: int) -> str:
    """The id of one generation of a crawl: a new one starts when the crawl has ended or is flushed."""
    return f"{name}@{generation}"


def has_generation(crawl_id: str) -> bool:
    """Whether this can be a crawl of Scrapy, by its id alone."""
    return _GENERATION.search(crawl_id) is not None


def safe_name(name: str) -> str:
    """The name itself if it can be part of a crawl's id, else a similar one."""
    safe = re.sub(r"[^A-Za-z0-9._:-]", "-", name)
    if safe == name and len(name) <= _MAX_NAME:
        return name
    return f"{safe[:_MAX_NAME]}-{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:10]}"


def tag_of(name: str) -> str:
    """The `spider` of the crawl's visits, so that only processes of this crawl lease them."""
    return "scrapy:" + hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:16]


def spec_of(name: str, spider: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The spec of a crawl, so that commands can show how to resume it. It has no values, which may be secret."""
    return {"scrapy": name, "scrapy_spider": spider, "scrapy_arguments": sorted(arguments)}


def without_values(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec without the values of arguments, which may be secret."""
    return {name: value for name, value in spec.items() if name != VALUES}


def digest(arguments: dict[str, Any]) -> str:
    """Ten hex digits that identify the arguments, the same in every process. A password in them is not readable."""
    text = "\0".join(f"{name}={_text(value)}" for name, value in sorted(arguments.items()))
    return hashlib.sha1(text.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()[:10]


def _text(value: Any) -> str:
    """A value as text: a number as on a command line, an object as its repr without its memory address."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, sort_keys=True, default=_plain)
    except (TypeError, ValueError, RecursionError):
        return _ADDRESS.sub("", repr(value))


def _plain(value: Any) -> list[str] | str:
    return sorted(map(_text, value)) if isinstance(value, set | frozenset) else _ADDRESS.sub("", repr(value))


async def submit_spider(frontier: Frontier, spider: str, arguments: dict[str, str]) -> tuple[Crawl, bool]:
    """Create a crawl of a Scrapy spider for the processes that wait for one (`python -m shoal.scrapy`).

    Returns the crawl, and whether it is new: an open crawl with the same arguments is returned as it is.
    """
    if not _SPIDER.match(spider):
        raise InvalidInput(f"{spider!r:.80} is not a valid spider name.")
    validation.arguments(arguments)
    name = crawl_name(spider, arguments)
    numbers = await generations(frontier, name)
    number = numbers[-1] if numbers else 0
    if number:
        crawl = await frontier.crawls.get(generation_id(name, number))
        if crawl.state.open:
            return crawl, False
    spec = {**spec_of(name, spider, arguments), VALUES: arguments}
    # A process that joins sets delay and concurrency to those of its project.
    limits = Limits(spider=tag_of(name))
    crawl = await frontier.crawls.create(generation_id(name, number + 1), limits, spec, exist_ok=True)
    return crawl, True
