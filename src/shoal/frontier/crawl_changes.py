"""Changes of crawls: a new version of the record at the home shard, then of the copies in the other shards.

If the process dies in between, some shards keep the old version until the Maintainer calls `repair`.
"""

from __future__ import annotations

import contextlib
from typing import Any

from shoal.errors import CrawlEnded
from shoal.frontier import visit_codec
from shoal.frontier.crawl_codec import copy_fields, removed_fields
from shoal.frontier.crawl_records import CrawlRecords, unknown_crawl
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.model import validation
from shoal.model.crawl import NOTHING_LEFT, STATES, Crawl, State


class CrawlChanges:
    def __init__(self, shards: Shards, records: CrawlRecords) -> None:
        self._shards = shards
        self._records = records

    async def change_all(self, crawl_id: str, state: State, *, why: str = "") -> Crawl:
        crawl = await self.change(crawl_id, state, why=why)
        if crawl.state is not state:
            return crawl
        for branch in await self._records.branches(crawl_id):
            # A branch may have ended before the others, by a limit. Its crawl alone decides whether it continues.
            with contextlib.suppress(CrawlEnded):
                await self.change(branch, state, why="" if state.open else why)
        return crawl

    async def change(self, crawl_id: str, state: State, *, why: str = "", spec: bytes = b"") -> Crawl:
        crawl = await self.at_home(crawl_id, state, why, spec)
        await self.bring(crawl, why)
        return crawl

    async def at_home(
        self, crawl_id: str, state: State, why: str, spec: bytes, pages: int | None = None, elsewhere: int = 0
    ) -> Crawl:
        """Change the record at the home shard. `elsewhere`: the version in another shard, if it may be newer."""
        home = self._shards.home(validation.crawl_id(crawl_id))
        reason = visit_codec.brief(why, "") if why else ""
        args = (crawl_id, state.code, reason, spec, "" if pages is None else pages, elsewhere)
        reply = await self._shards.call("change", home, args, replicated=True)
        if reply[0] == Status.UNKNOWN:
            raise unknown_crawl(crawl_id)
        if reply[0] == Status.ENDED:
            now = STATES[reply[1].decode()].value
            change = "resumed" if state is State.RUNNING else state.value
            raise CrawlEnded(f"Crawl {crawl_id!r} is {now} and cannot be {change}.")
        return await self._records.get(crawl_id)

    async def bring(self, crawl: Crawl, why: str, mode: str = "u") -> list[list[Any]]:
        if crawl.state is State.DELETED:
            return []
        replies = await self._sync(crawl, why, mode)
        if any(_is_newer(reply, crawl) for reply in replies):
            # Another process has changed the crawl since; or, in a cluster, its home shard has lost a change.
            crawl = await self._records.get(crawl.id)
            if newer := [reply for reply in replies if _is_newer(reply, crawl)]:
                await self._catch_up(crawl, newer)
                replies = await self._sync(await self._records.get(crawl.id), why, mode)
        return replies

    async def _catch_up(self, crawl: Crawl, newer: list[list[Any]]) -> None:
        """Give the newest version to the home shard, which has lost writes. Its own record applies.

        Except that a crawl stays stopped or expired: its visits are already excluded.
        """
        states = {STATES[reply[2].decode()] for reply in newer}
        ended = states & {State.STOPPED, State.EXPIRED} if crawl.state.open else set()
        state = ended.pop() if ended else crawl.state
        version = max(reply[1] for reply in newer)
        await self.at_home(crawl.id, state, state.value if ended else crawl.why, b"", elsewhere=version)

    async def _sync(self, crawl: Crawl, why: str, mode: str) -> list[list[Any]]:
        args = _sync_args(crawl, why or crawl.state.value, mode)
        shards = range(self._shards.count)
        return list((await self._shards.call_all("sync", dict.fromkeys(shards, args), replicated=True)).values())

    async def repair(self, crawl: Crawl) -> None:
        """Bring every shard to the version that the crawl's home shard has.

        Needed when the process that changed the crawl died before every shard had the change.
        """
        if not crawl.is_complete:
            await self.bring(crawl, crawl.why)
        elif any(reply[0] != Status.OK for reply in await self.bring(crawl, NOTHING_LEFT, mode="x")):
            # A visit was added before the crawl was closed everywhere: `finish` would have reopened it.
            await self.change_all(crawl.parent or crawl.id, State.RUNNING)

    async def introduce(self, crawl_id: str, shard: int) -> Crawl:
        """Give a shard a copy of a crawl that it does not have, or a newer one."""
        crawl = await self._records.get(crawl_id)
        check_open(crawl)
        await self._shards.call("sync", shard, _sync_args(crawl, "", "c"), replicated=True)
        return crawl


def check_open(crawl: Crawl) -> None:
    if not crawl.state.open:
        raise CrawlEnded(f"Crawl {crawl.id!r} is {crawl.state.value}: it accepts no more URLs.")


def _is_newer(reply: list[Any], crawl: Crawl) -> bool:
    """Whether a shard has a change of the crawl that its home shard does not have, or another with this version."""
    if reply[0] != Status.OK:
        return False
    version, state = reply[1], reply[2].decode()
    other = state in (State.RUNNING.code, State.PAUSED.code) and state != crawl.state.code
    return bool(state) and (version > crawl.version or (version == crawl.version and other))


def _sync_args(crawl: Crawl, why: str, mode: str) -> tuple[str | int, ...]:
    return (crawl.key, crawl.version, crawl.state.code, why, mode, *copy_fields(crawl), *removed_fields(crawl))
