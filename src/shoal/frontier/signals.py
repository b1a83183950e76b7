"""Signals: hints that pages of perpetual crawls have changed. They pull the next visit of a page forward.

A signal is noted in the shard of its page (lua/touch.lua). The calls of `lease` that follow look for the page in the
calendar, at most 1,000 entries a call: a call stays short, and a large calendar takes more calls. The visits that
signals led to, and how many of them found a change, are counted by host and kind. Signals that are rarely right are
ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from shoal.errors import CrawlEnded, InvalidUrl
from shoal.frontier import keys
from shoal.frontier.crawls import Crawls
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.store import Argument
from shoal.urls.canonical import SCHEMES, Target, canonical
from shoal.urls.fingerprint import fingerprint, host_bits

MOST_A_CALL = 250
_WHOLE = 3


class SignalKind(StrEnum):
    """Where a signal came from; the value is the letter that scripts use."""

    TOUCH = "t"
    """A person or program of the operator. It is never ignored."""
    SITEMAP = "s"
    FEED = "f"
    INDEXNOW = "i"


class SignalResult(StrEnum):
    """The result of one signal; the value is the letter that scripts use."""

    NOTED = "p"
    """The page is visited soon."""
    UNKNOWN = "n"
    """The crawl does not know the page."""
    IGNORED = "i"
    """Such signals of this host were rarely right."""
    FULL = "f"
    """Too many signals wait."""
    ONCE = "o"
    """The crawl is not perpetual."""
    INVALID = "x"
    """It is not a URL."""


class Signal(NamedTuple):
    """A page that may have changed, and when (seconds since 1970; 0 = it is visited in any case)."""

    url: str
    changed_at: float = 0.0


class Precision(NamedTuple):
    """The latest visits that signals of a kind led to, at most 100, and how many of them found a change."""

    visits: int
    changes: int


class Signals:
    """Reached as `frontier.signals`."""

    def __init__(self, shards: Shards, crawls: Crawls) -> None:
        self._shards = shards
        self._crawls = crawls

    async def note(self, crawl_id: str, kind: SignalKind, signals: Iterable[Signal]) -> list[SignalResult]:
        """Note signals. Returns the result of each, in their order. Raises CrawlEnded for an ended crawl."""
        crawl = await self._crawls.known(crawl_id)
        results: list[SignalResult] = []
        by_shard: dict[int, tuple[list[int], list[Argument]]] = {}
        for position, signal in enumerate(signals):
            try:
                target = canonical(signal.url)
            except InvalidUrl:
                results.append(SignalResult.INVALID)
                continue
            results.append(SignalResult.UNKNOWN)
            positions, args = by_shard.setdefault(self._shards.of(target.host), ([], []))
            positions.append(position)
            mark = fingerprint(host_bits(target.host), target.url, self._shards.seed)
            args += [target.host, mark, _path(target), max(0, int(signal.changed_at))]
        while by_shard:
            # A round has one call a shard.
            calls = {
                shard: (crawl.key, kind.value, *args[: 4 * MOST_A_CALL]) for shard, (_, args) in by_shard.items()
            }  # fmt: skip
            replies = await self._shards.call_all("touch", calls, replicated=True)
            for shard, reply in replies.items():
                positions = by_shard[shard][0][:MOST_A_CALL]
                if reply[0] == Status.ENDED:
                    raise CrawlEnded(f"Crawl {crawl_id!r} has ended: its pages are not visited again.")
                if reply[0] == Status.OK:
                    for position, letter in zip(positions, reply[1].decode(), strict=True):
                        results[position] = SignalResult(letter)
            by_shard = {
                shard: (positions[MOST_A_CALL:], args[4 * MOST_A_CALL :])
                for shard, (positions, args) in by_shard.items()
                if len(positions) > MOST_A_CALL
            }
        return results

    async def precision(self, crawl_id: str, host: str) -> dict[SignalKind, Precision]:
        """How often signals about pages of a host were right, by kind."""
        crawl = await self._crawls.known(crawl_id)
        name = keys.signals(self._shards.prefixes[self._shards.of(host)], crawl.key)
        field = await self._shards.command("HGET", name, host)
        return _precision((field or b"").decode().split())


def _precision(words: Sequence[str]) -> dict[SignalKind, Precision]:
    return {
        SignalKind(words[at]): Precision(int(words[at + 1]), int(words[at + 2])) for at in range(0, len(words) - 3, 4)
    }


def _path(target: Target) -> str:
    """The page as lua/include/signals.lua reads it from an entry."""
    return f"{_WHOLE if target.whole else SCHEMES.index(target.scheme)}{target.rest}"
