"""Validators: the ETag or Last-Modified of a page, for conditional requests when the page is visited again.

They only save traffic: if one is lost, the next visit transfers the whole page instead of a 304.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TypeVar

from shoal.errors import CrawlEnded, InvalidInput
from shoal.frontier.crawls import Crawls
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.store import Argument
from shoal.urls.canonical import canonical
from shoal.urls.fingerprint import fingerprint, host_bits, shard_of

MOST_A_CALL = 250
MAX_VALIDATOR = 1024
_T = TypeVar("_T")


class Validators:
    """Reached as `frontier.validators`."""

    def __init__(self, shards: Shards, crawls: Crawls) -> None:
        self._shards = shards
        self._crawls = crawls

    async def remember(self, crawl_id: str, pairs: Sequence[tuple[str, str]]) -> None:
        """Store the validator of each URL; '' removes it. A validator that does not fit into a header is left out."""
        crawl = await self._crawls.known(crawl_id)
        by_shard: dict[int, list[Argument]] = {}
        for url, validator in pairs:
            if not isinstance(validator, str):
                raise InvalidInput(f"The validator of {url!r:.80} is {validator!r:.80}: it must be text.")
            shard, mark = self._mark(url)
            if len(validator) <= MAX_VALIDATOR and validator.isprintable():
                by_shard.setdefault(shard, []).extend((mark, validator))
        for part in _rounds(by_shard, 2 * MOST_A_CALL):
            args = {shard: (crawl.key, *flat) for shard, flat in part.items()}
            for shard, reply in (await self._shards.call_all("remember", args)).items():
                if reply[0] == Status.UNKNOWN:
                    # A shard that never saw an ended crawl gets no copy of it.
                    with contextlib.suppress(CrawlEnded):
                        await self._crawls.introduce(crawl_id, shard)
                        await self._shards.call("remember", shard, args[shard])

    async def recall(self, crawl_id: str, urls: Sequence[str]) -> list[str]:
        """The validator of each URL, '' where there is none."""
        crawl = await self._crawls.known(crawl_id)
        by_shard: dict[int, list[tuple[int, int]]] = {}
        for index, url in enumerate(urls):
            shard, mark = self._mark(url)
            by_shard.setdefault(shard, []).append((index, mark))
        validators = [""] * len(urls)
        for part in _rounds(by_shard, MOST_A_CALL):
            args: dict[int, list[Argument]] = {
                shard: [crawl.key, *(mark for _, mark in marks)] for shard, marks in part.items()
            }
            for shard, reply in (await self._shards.call_all("recall", args)).items():
                for (index, _), validator in zip(part[shard], reply[1:], strict=True):
                    validators[index] = _text(validator)
        return validators

    def _mark(self, url: str) -> tuple[int, int]:
        """The shard of a URL and its fingerprint there."""
        target = canonical(url)
        bits = host_bits(target.host)
        return shard_of(bits, self._shards.count), fingerprint(bits, target.url, self._shards.seed)


def _rounds(by_shard: dict[int, list[_T]], most: int) -> Iterator[dict[int, list[_T]]]:
    """The values in parts of at most `most` for each shard, so that a part is one call a shard."""
    start = 0
    while part := {shard: values[start : start + most] for shard, values in by_shard.items() if start < len(values)}:
        yield part
        start += most


def _text(validator: bytes) -> str:
    """The stored value goes into a request header, so only printable text is accepted."""
    try:
        text = validator.decode()
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() else ""
