"""Outputs: the functions that the rest of Shoal calls. registry.py lists the technologies."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from shoal.sinks.contract import Holds, Replay, Sink, Stored
from shoal.sinks.registry import parse_output

__all__ = [
    "Sink",
    "check_output",
    "example_query",
    "has_parts",
    "is_local",
    "is_name",
    "merge",
    "open_sink",
    "part_names",
    "remove_output",
    "takes",
    "unmerged",
]

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}\Z")


def check_output(uri: str) -> str:
    """The full URI; SinkRefused in one sentence if it cannot be an output. Opens and creates nothing."""
    output = parse_output(uri)
    output.check_driver()
    output.technology.check(output.address)
    return output.uri


def remove_output(uri: str) -> None:
    """Delete the content of an output; SinkRefused if it is not a file or folder of this machine."""
    output = parse_output(uri)
    output.technology.remove(output.address)


def is_name(output: str) -> bool:
    """Whether this is the name of an output in the settings, rather than a URI."""
    return _NAME.match(output) is not None


def is_local(uri: str) -> bool:
    """Whether this output is a file or folder of this machine, which workers on other machines cannot write."""
    return parse_output(uri).is_local


def has_parts(uri: str) -> bool:
    """Whether part files of this output wait for `merge`, e.g. after a crawl that was killed."""
    output = parse_output(uri)
    return output.technology.has_parts(output.address)


def part_names(uri: str) -> set[str]:
    """The names of the parts of this output that are not in it yet."""
    output = parse_output(uri)
    return output.technology.part_names(output.address)


def unmerged(uri: str, names: Collection[str]) -> set[str]:
    """Which of these parts are still not in the output. Requests that live workers close theirs."""
    output = parse_output(uri)
    return output.technology.unmerged(output.address, names)


def takes(uri: str, *, spider: bool) -> tuple[type[Stored], ...]:
    """The types of records that this output stores for a crawl with or without a spider; it ignores others."""
    return parse_output(uri).technology.takes(spider=spider)


def is_database(uri: str) -> bool:
    """Whether this output keeps one row per key, which can be overwritten and read by its key."""
    return parse_output(uri).technology.holds is Holds.TABLES


def open_sink(uri: str, *, worker: str, on_trouble: Callable[[str], None] | None = None, spider: bool = False) -> Sink:
    """One worker's sink for this output of a crawl with or without a spider. Call its `open` before the first write.

    `on_trouble` gets one sentence about once a minute while the output is unavailable, and '' when it works again.
    """
    output = parse_output(uri)
    output.check_driver()
    hear = on_trouble or (lambda sentence: None)
    return output.technology.open(output.address, worker=worker, on_trouble=hear, spider=spider)


async def merge(uri: str, *, live: Collection[str], replay: Replay, spider: bool = False) -> None:
    """Add finished part files to the output. Databases and streams have none.

    `live` are workers of other machines that may still write. `replay` shows the receipt of a batch whose worker died
    to the store, and returns the keys that the store rejected.
    """
    output = parse_output(uri)
    if output.technology.has_parts(output.address):
        output.check_driver()
        await output.technology.merge(output.address, live=live, replay=replay, spider=spider)


def example_query(uri: str, crawl: str, *, items: bool = False) -> str:
    """A shell command that shows the first rows of a crawl in this output; '' if there is no short one."""
    output = parse_output(uri)
    return output.technology.example_query(output.address, crawl, items=items)
