"""Admission: adds URLs, grouped by shard and host, in calls of at most 250 visits and a few megabytes."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

from shoal.errors import CrawlEnded, InvalidUrl, InvalidVisit
from shoal.frontier import visit_codec
from shoal.frontier.crawls import Crawls
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.model.validation import WIDEST
from shoal.model.visit import Added, AddResult, Visit
from shoal.store import Argument
from shoal.urls.canonical import canonical
from shoal.urls.fingerprint import fingerprint, host_bits, host_mark, pass_mark, shard_of, variant_mark

MOST_A_CALL = 250
# The replies of add.lua for links that the shard has.
_NEW = ord(AddResult.NEW)
_HELD = (_NEW, ord(AddResult.SEEN))
# A call blocks the store while it runs.
_BYTES_A_CALL = 4_000_000

# A link as add.lua takes it, with the key of its crawl: crawl, host, priority, depth, fingerprint, entry, forced.
# A plain tuple, because one is made for every link.
Link = tuple[str, str, int, int, int, bytes, bool]


class Confirmed(NamedTuple):
    """A call of add.lua that a server process of its shard has confirmed."""

    crawl: str
    shard: int
    run: bytes
    # The result of each link, a letter of AddResult.
    letters: bytes
    # The positions of its links among the visits that were added.
    positions: list[int]
    # Groups of links, see add.lua.
    args: list[Argument]

    def links(self) -> Iterator[tuple[int, bool, Link]]:
        """The links that the shard has: the position of each, whether it was new, and the link."""
        crawl, args = self.crawl, cast(list[Any], self.args)
        results = zip(self.positions, self.letters, strict=True)
        at = 0
        while at < len(args):
            host, priority, depth, force, number = args[at : at + 5]
            at += 5
            for position, letter in islice(results, number):
                if letter in _HELD:
                    yield position, letter == _NEW, (crawl, host, priority, depth, args[at], args[at + 1], force == 1)
                at += 2


# host, priority, depth -> positions, fingerprints and entries in turn
_Groups = dict[tuple[str, int, int], tuple[list[int], list[Argument]]]
# `Visit.found` in a pass: pages, start URLs that lead elsewhere, and URLs of pages that are gone.
_OF_A_PASS = ("revisit", "seed", "other")


class Admission:
    def __init__(self, shards: Shards, crawls: Crawls) -> None:
        self._shards = shards
        self._crawls = crawls

    async def add(
        self, crawl_id: str, visits: Iterable[Visit | str], force: bool, skip_invalid: bool, max_bytes: int,
        confirmed: list[Confirmed] | None = None,
    ) -> Added:  # fmt: skip
        """`confirmed` receives the calls and the replies of the shards, if the caller needs them for the journal."""
        crawl = await self._crawls.known(crawl_id)
        by_shard, total = self._grouped(visits, skip_invalid, max_bytes)
        letters = bytearray(AddResult.INVALID.encode() * total)
        calls = [(shard, call) for shard, groups in by_shard.items() for call in _calls(groups, force)]
        # A round has one call a shard; a second call to the same shard waits for the next round.
        while calls:
            this_round: dict[int, tuple[list[int], list[Argument]]] = {}
            later = []
            for shard, call in calls:
                if shard in this_round:
                    later.append((shard, call))
                else:
                    this_round[shard] = call
            request = secrets.token_hex(8) if force else ""
            args = {
                shard: (crawl.key, len(positions), request, *link_args)
                for shard, (positions, link_args) in this_round.items()
            }
            replies = await self._shards.call_all("add", args, replicated=True)
            for shard, reply in replies.items():
                if reply[0] != Status.OK:
                    reply = await self._add_after_change(crawl_id, shard, args[shard], reply[0])
                self._shards.epochs.answered(shard, reply[2])
                for position, letter in zip(this_round[shard][0], reply[1], strict=True):
                    letters[position] = letter
                if confirmed is not None:
                    confirmed.append(Confirmed(crawl.key, shard, reply[2], reply[1], *this_round[shard]))
            calls = later
        return Added(letters.decode())

    async def add_again(self, crawl_id: str, shard: int, links: Sequence[Link]) -> None:
        """Add links of the journal to their shard, which may have lost them."""
        crawl = await self._crawls.known(crawl_id)
        for force in (False, True):
            groups: _Groups = {}
            for position, (_, host, priority, depth, number, entry, forced) in enumerate(links):
                if forced is force:
                    positions, pairs = groups.setdefault((host, priority, depth), ([], []))
                    positions.append(position)
                    pairs += [number, entry]
            for positions, link_args in _calls(groups, force):
                args = (crawl.key, len(positions), secrets.token_hex(8) if force else "", *link_args)
                reply = await self._shards.call("add", shard, args, replicated=True)
                if reply[0] != Status.OK:
                    await self._add_after_change(crawl_id, shard, args, reply[0])

    async def _add_after_change(self, crawl_id: str, shard: int, args: Sequence[Argument], status: Status) -> list[Any]:
        """Repeat `add` in a shard that does not know the crawl, or does not know that the crawl was reopened."""
        while status == Status.UNKNOWN:
            await self._crawls.introduce(crawl_id, shard)
            reply = await self._shards.call("add", shard, args, replicated=True)
            status = reply[0]
        if status == Status.ENDED:
            self._crawls.drop_cache(crawl_id)
            crawl = await self._crawls.get(crawl_id)
            self._crawls.check_open(crawl)
            await self._crawls.repair(crawl)
            reply = await self._shards.call("add", shard, args, replicated=True)
            if reply[0] != Status.OK:
                raise CrawlEnded(f"Crawl {crawl_id!r} has ended: it accepts no more URLs.")
        return reply

    def _grouped(
        self, visits: Iterable[Visit | str], skip_invalid: bool, max_bytes: int
    ) -> tuple[dict[int, _Groups], int]:
        """Parse and check every visit, before the first call."""
        by_shard: dict[int, _Groups] = {}
        hosts: dict[str, tuple[int, _Groups]] = {}
        seed, count = self._shards.seed, self._shards.count
        position = -1
        for position, visit in enumerate(visits):
            if not isinstance(visit, str | Visit):
                raise InvalidVisit(f"A visit must be a Visit or a URL as text, not {type(visit).__name__}.")
            try:
                target = canonical(visit if isinstance(visit, str) else visit.url)
            except InvalidUrl:
                if skip_invalid:
                    continue
                raise
            if isinstance(visit, str):
                packed = visit_codec.plain(target, 0, "link")
                priority = depth = 0
                method, body = "GET", b""
            else:
                priority, depth, method, body = visit.priority, visit.depth, visit.method, visit.body
                _check(visit)
                own_host = target.host
                if visit.host:
                    target = target._replace(host=canonical(f"http://{visit.host}/").host, rest=target.url, whole=True)
                packed = visit_codec.pack(target, visit, max_bytes)
                if not visit.is_plain and (variant := visit.notes.variant):
                    body = variant_mark(variant, body)
                elif visit.found in _OF_A_PASS and (number := visit.notes.pass_number):
                    # Deduplicated by its URL for the crawl, and by this fingerprint once in each pass.
                    body = pass_mark(number)
                if target.host != own_host:
                    body = host_mark(target.host, body)
            known = hosts.get(target.host)
            if known is None:
                bits = host_bits(target.host)
                known = hosts[target.host] = (bits, by_shard.setdefault(shard_of(bits, count), {}))
            bits, groups = known
            group = groups.get((target.host, priority, depth))
            if group is None:
                group = groups[target.host, priority, depth] = ([], [])
            group[0].append(position)
            group[1].append(fingerprint(bits, target.url, seed, method, body))
            group[1].append(packed)
        return by_shard, position + 1


def _calls(groups: _Groups, force: bool) -> list[tuple[list[int], list[Argument]]]:
    """Arguments of add.lua for one shard, split into calls."""
    calls: list[tuple[list[int], list[Argument]]] = []
    call_positions: list[int] = []
    args: list[Argument] = []
    size = 0
    for (host, priority, depth), (positions, pairs) in groups.items():
        start = 0
        while start < len(positions):
            room = MOST_A_CALL - len(call_positions)
            count, size = _fitting(pairs[2 * start + 1 : 2 * (start + room) : 2], size)
            if count == 0 and not call_positions:
                # The entry alone exceeds the limit. It is sent all the same.
                count = 1
            elif count == 0:
                calls.append((call_positions, args))
                call_positions, args, size = [], [], 0
                continue
            part = positions[start : start + count]
            args += [host, priority, depth, int(force), len(part), *pairs[2 * start : 2 * (start + len(part))]]
            call_positions += part
            start += len(part)
    if call_positions:
        calls.append((call_positions, args))
    return calls


def _fitting(entries: list[Argument], size: int) -> tuple[int, int]:
    """How many entries fit into a call that has `size` bytes, and its size with them."""
    sizes = list(map(len, cast(list[bytes], entries)))
    if (total := size + sum(sizes)) <= _BYTES_A_CALL:
        return len(entries), total
    count = 0
    while size + sizes[count] <= _BYTES_A_CALL:
        size += sizes[count]
        count += 1
    return count, size


def _check(visit: Visit) -> None:
    for name in ("priority", "depth"):
        value = getattr(visit, name)
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or abs(value) >= WIDEST
            or (name == "depth" and value < 0)
        ):
            raise InvalidVisit(f"{name} of {visit.url[:80]!r} is {value!r}: it must be a whole number below 2**53.")
