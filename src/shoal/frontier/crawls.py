"""Crawls: create, pause, resume, stop, finish, retry and delete them. The interface for callers of the frontier.

`crawl_records.py` reads records, `crawl_changes.py` changes them in all shards, `crawl_counts.py` counts visits.

URLs that a spider sends to another spider wait in a branch: a crawl of its own, `<crawl>:<spider>`, that is counted,
changed and finished together with its crawl.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from shoal.errors import CrawlEnded, CrawlExists, InvalidInput, InvalidLimit
from shoal.frontier import deletion
from shoal.frontier.crawl_changes import CrawlChanges, check_open
from shoal.frontier.crawl_codec import limits_of, packed
from shoal.frontier.crawl_counts import CrawlCounts
from shoal.frontier.crawl_records import CrawlRecords, family, unknown_crawl
from shoal.frontier.failures import FailureChoice, FailureCursor, failures, retry_chosen
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.model import validation
from shoal.model.crawl import NOTHING_LEFT, STATES, Counts, Crawl, CrawlKind, State
from shoal.model.limits import Limits
from shoal.model.visit import Visit
from shoal.store import Argument
from shoal.urls.canonical import canonical
from shoal.urls.fingerprint import fingerprint, host_bits, pass_mark, shard_of

_TALLY_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,80}\Z")


class Crawls(CrawlRecords):
    """Reached as `frontier.crawls`."""

    def __init__(self, shards: Shards) -> None:
        super().__init__(shards)
        self._changes = CrawlChanges(shards, self)
        self.counts = CrawlCounts(shards, self)

    async def create(
        self, crawl_id: str, limits: Limits | None = None, spec: dict[str, Any] | None = None, *,
        exist_ok: bool = False, reuse: bool = False,
    ) -> Crawl:  # fmt: skip
        """Create a crawl. An id is used once: CrawlExists is raised for an id that is taken, even by an ended crawl.

        With `exist_ok`, an existing crawl of this id is returned as it is, with its own limits. With `reuse`, the id of
        a deleted crawl is free. Without it, a request that is repeated after the deletion creates nothing.
        """
        validation.crawl_id(crawl_id)
        limits = Limits() if limits is None else limits
        if not isinstance(limits, Limits):
            raise InvalidLimit(f"limits are {limits!r}: they must be Limits.")
        limits.check()
        try:
            return await self._create(crawl_id, limits, packed(limits, spec or {}), reuse=reuse)
        except CrawlExists:
            if exist_ok:
                return await self.get(crawl_id)
            raise

    async def restore(self, crawl_id: str, data: bytes) -> Crawl:
        """Create a crawl from a dump. `data` is its stored specification, empty if it was deleted."""
        return await self._create(validation.crawl_id(crawl_id), limits_of(data) if data else Limits(), data)

    async def _create(self, crawl_id: str, limits: Limits, data: bytes, *, reuse: bool = False) -> Crawl:
        home = self._shards.home(crawl_id)
        args = (crawl_id, secrets.token_hex(8), limits.max_pages, data)
        reply = await self._shards.call("create", home, args, replicated=True)
        if reuse and reply[0] == Status.EXISTS and reply[1] == State.DELETED.code.encode():
            await self.erase(crawl_id)
            reply = await self._shards.call("create", home, args, replicated=True)
        if reply[0] == Status.EXISTS:
            state = STATES[reply[1].decode()].value
            raise CrawlExists(f"A crawl {crawl_id!r} exists and is {state}: choose another id.")
        return await self.get(crawl_id)

    async def branch(self, crawl_id: str, spider: str) -> str:
        """The id of the crawl's branch for another spider; the branch is created on first use."""
        crawl = await self.known(crawl_id)
        if validation.spider(spider) == crawl.limits.spider:
            return crawl_id
        name = validation.crawl_id(f"{crawl_id}:{spider}")
        branch = self._by_id.get(name)
        if branch is None:
            self.check_open(await self.get(crawl_id))
            limits = msgspec.structs.replace(crawl.limits, spider=spider)
            # Recorded before the branch has visits: a check whether the crawl is finished must see it.
            await self.facts.add_branch(crawl_id, spider)
            # The branch of a deleted crawl of the same name is deleted, too.
            branch = await self.create(name, limits, {**crawl.spec, "parent": crawl_id}, exist_ok=True, reuse=True)
            # A process that pauses, resumes or stops the crawl at the same time may not have seen the branch.
            while branch.state.open and branch.parent == crawl_id:
                state = (await self.get(crawl_id)).state
                if state is branch.state or state is State.DELETED:
                    break
                branch = await self._changes.change(name, state)
        if branch.parent != crawl_id:
            raise InvalidInput(
                f"Crawl {crawl_id!r} cannot have a branch for spider {spider}: {name!r} is another crawl."
            )
        return name

    async def pause(self, crawl_id: str, why: str = "") -> Crawl:
        """Pause: no further visit is leased, leased ones may finish. With a reason, a paused crawl keeps its reason."""
        return await self._changes.change_all(crawl_id, State.PAUSED, why=why)

    async def resume(self, crawl_id: str, why: str = "") -> Crawl:
        """Resume; with a reason, only a crawl that was paused for this reason."""
        return await self._changes.change_all(crawl_id, State.RUNNING, why=why)

    async def stop(self, crawl_id: str, why: str = "stopped") -> Crawl:
        """Stop: waiting visits are excluded, leased ones may finish, and no more URLs are added."""
        return await self._changes.change_all(crawl_id, State.STOPPED, why=why)

    async def expire(self, crawl_id: str, at_seconds: float) -> Crawl:
        """Let the crawl expire at this time of the store's clock (seconds since 1970); 0 removes the expiry."""
        return await self.relimit(crawl_id, expires_at=at_seconds)

    async def relimit(self, crawl_id: str, **changed: float | str) -> Crawl:
        """Change limits by name, also of its branches. Not max_pages: shards may hold parts of it."""
        crawl = await self.get(crawl_id)
        limits = msgspec.structs.replace(crawl.limits, **changed)
        limits.check()
        for branch in await self.branches(crawl_id):
            await self.relimit(branch, **changed)
        return await self._changes.change(crawl_id, crawl.state, spec=packed(limits, crawl.spec))

    async def delete(self, crawl_id: str) -> None:
        """Remove everything an ended crawl holds. Its id stays taken, unless `create` is called with `reuse`."""
        crawl = await self.get(crawl_id)
        if crawl.state.open:
            raise InvalidInput(f"Crawl {crawl_id!r} is {crawl.state.value}: stop it before you delete it.")
        if crawl.kind is not CrawlKind.BRANCH:
            await deletion.note(self._shards, crawl_id, await self.count(crawl_id, all_admissions=True))
        for branch in await self.branches(crawl_id):
            # The process that ended the crawl may have died before it ended the branches.
            with contextlib.suppress(CrawlEnded):
                await self._changes.change(branch, State.STOPPED, why=crawl.why)
            await self.delete(branch)
        if crawl.state is State.EXPIRED:
            crawl = await self._changes.at_home(crawl_id, State.EXPIRED, "expired", b"")
        await self._changes.bring(crawl, crawl.why)
        await deletion.purge(self._shards, crawl.key)
        await self._shards.call("change", self._shards.home(crawl_id), (crawl_id, "d", "", "", "", 0))
        self._forget(crawl)

    async def erase(self, crawl_id: str) -> bool:
        """Remove the record of a deleted crawl, so that its id is free. Totals keep its counts."""
        self.drop_cache(crawl_id)
        return await deletion.erase(self._shards, validation.crawl_id(crawl_id))

    async def count(
        self, crawl_id: str, *, all_admissions: bool = False, within_seconds: float | None = None
    ) -> Counts:
        """The counts of the crawl's URLs by their current state, summed over all shards.

        With `all_admissions`, a URL that failed and was retried is counted as failed, and again in its current state:
        then no count of ended visits ever decreases. With `within_seconds`, only shards that reply in time are counted.
        """
        return await self.counts.count(crawl_id, all_admissions=all_admissions, within_seconds=within_seconds)

    async def finished(self, crawl_id: str) -> bool:
        """True exactly when nothing is waiting, leased or due later in any shard.

        A perpetual crawl is not finished while it is open.
        """
        return await self.counts.finished(crawl_id)

    async def finish(self, crawl_id: str) -> bool:
        """Close a finished crawl. False when visits are open, and the crawl continues; True if it had ended before."""
        if not await self.finished(crawl_id):
            return False
        if not (await self.get(crawl_id)).state.open:
            return True
        replies = []
        for name in await family(self, crawl_id):
            with contextlib.suppress(CrawlEnded):
                crawl = await self._changes.at_home(name, State.FINISHED, NOTHING_LEFT, b"")
                replies += await self._changes.bring(crawl, NOTHING_LEFT, mode="x")
        if all(reply[0] == Status.OK for reply in replies):
            return True
        # A visit was added between the check and the closing: reopen the shards that were closed.
        await self._changes.change_all(crawl_id, State.RUNNING)
        return False

    async def end(self, crawl: Crawl, why: str) -> None:
        """Finish a crawl that has reached a limit: waiting visits are excluded with this reason."""
        await self._changes.change_all(crawl.id, State.FINISHED, why=why)

    async def extend(self, crawl_id: str, limits: Limits, spec: dict[str, Any]) -> Crawl:
        """Raise limits of a crawl. A crawl that had reached a limit continues, with the URLs that were kept for this.

        URLs that were set aside one by one, by limits of depth or of a host, are added by `set_aside.readmit`.
        """
        limits.check()
        for name in await family(self, crawl_id):
            crawl = await self.get(name)
            own = msgspec.structs.replace(limits, spider=crawl.limits.spider)
            own_spec = {**spec, "parent": crawl.parent} if crawl.parent else spec
            state = State.PAUSED if crawl.state is State.PAUSED else State.RUNNING
            pages = limits.max_pages if limits.max_pages != crawl.limits.max_pages else None
            changed = await self._changes.at_home(name, state, "", packed(own, own_spec), pages)
            await self._changes.bring(changed, "")
        return await self.get(crawl_id)

    async def retry(self, crawl_id: str, *, urls: Iterable[str] | None = None, reason: str = "") -> int:
        """Add failed visits again: all, or those with these URLs or this reason. A finished crawl runs again.

        Returns the number of visits. With URLs or a reason, the call reads every failed visit of the crawl.
        """
        if urls is not None or reason:
            choice = FailureChoice(frozenset(canonical(url).url for url in urls or ()), reason)
            return await self._retry_chosen(crawl_id, choice) if reason or choice.urls else 0
        crawl = await self._reopened(crawl_id)
        total = 0
        for shard in range(self._shards.count):
            more, until = 1, ""
            while more:
                reply = await self._retry_in(crawl, shard, (until, "f"))
                if reply[0] != Status.OK:
                    break
                total += reply[1]
                more, until = reply[2:4]
        for branch in await self.branches(crawl_id):
            # A branch that has reached a limit stays as it is.
            with contextlib.suppress(CrawlEnded):
                total += await self.retry(branch)
        return total

    async def _retry_chosen(self, crawl_id: str, choice: FailureChoice) -> int:
        total = 0
        for name in await family(self, crawl_id):
            crawl = await self.known(name)
            # A crawl without a matching visit is not reopened.
            async for _, visit, reason in failures(self._shards, crawl, FailureCursor(name), 1000):
                if choice.matches(visit, reason):
                    if name != crawl_id:
                        await self._reopened(crawl_id)
                    crawl = await self._reopened(name)
                    total += await retry_chosen(self._shards, crawl, choice, partial(self._retry_in, crawl))
                    break
        return total

    async def _retry_in(self, crawl: Crawl, shard: int, args: tuple[Argument, ...]) -> Any:
        """Call `retry` in a shard. A crawl without open visits may just have been finished again: it is reopened."""
        while True:
            reply = await self._shards.call("retry", shard, (crawl.key, *args), replicated=True)
            if reply[0] != Status.ENDED:
                return reply
            await self._changes.bring(await self._reopened(crawl.id), "")

    async def _reopened(self, crawl_id: str) -> Crawl:
        crawl = await self.get(crawl_id)
        if crawl.state is State.FINISHED:
            crawl = await self._changes.change(crawl_id, State.RUNNING)
        if not crawl.state.open:
            raise CrawlEnded(f"Crawl {crawl_id!r} is {crawl.state.value}: its failed URLs cannot be retried.")
        return crawl

    async def failed(self, crawl_id: str, most: int = 100) -> list[tuple[Visit, str]]:
        """Failed visits with their reasons, oldest first in each shard."""
        return (await self.failed_page(crawl_id, most))[0]

    async def failed_page(
        self, crawl_id: str, most: int, behind: FailureCursor | None = None
    ) -> tuple[list[tuple[Visit, str]], FailureCursor | None]:
        """Failed visits behind a cursor, and the cursor behind the last of them; None when there are no more."""
        failed: list[tuple[Visit, str]] = []
        last = behind = behind or FailureCursor(crawl_id)
        # In the order of their names: a branch that was deleted since is skipped.
        for name in [name for name in await family(self, crawl_id) if name >= behind.crawl]:
            start = behind if name == behind.crawl else FailureCursor(name)
            async for cursor, visit, reason in failures(self._shards, await self.known(name), start, most + 1):
                if len(failed) == most:
                    return failed, last
                failed.append((visit, reason))
                last = cursor
        return failed, None

    async def forget(self, crawl_id: str, urls: Iterable[str], *, passed: int = 0) -> int:
        """Let these URLs be visited again when they are added again. Returns how many were known.

        With `passed`, only their visit in the pass of that number is forgotten. Workers remember the links that they
        have added recently. They notice the change within five seconds.
        """
        crawl = await self.known(crawl_id)
        body = pass_mark(passed) if passed else b""
        by_shard: dict[int, list[int]] = {}
        for url in urls:
            target = canonical(url)
            bits = host_bits(target.host)
            shard = shard_of(bits, self._shards.count)
            by_shard.setdefault(shard, []).append(fingerprint(bits, target.url, self._shards.seed, body=body))
        known = 0
        for shard, marks in by_shard.items():
            for start in range(0, len(marks), 250):
                reply = await self._shards.call("forget", shard, (crawl.key, *marks[start : start + 250]))
                known += reply[1] if reply[0] == Status.OK else 0
        if known and not passed and (crawl := await self.get(crawl_id)).state.open:
            # A new version: workers read it, and forget the links that they remember.
            await self._changes.bring(
                await self._changes.at_home(crawl_id, crawl.state, crawl.why, b"", elsewhere=crawl.version), ""
            )
        return known

    async def tally(self, crawl_id: str, **counts: int) -> dict[str, int]:
        """Add to the crawl's statistics and return all totals; without counts, only return them.

        For people, not for decisions: a call whose reply was lost is repeated and counts twice. Decisions use `facts`.
        """
        args: list[str | int] = [validation.crawl_id(crawl_id)]
        for name, count in counts.items():
            if not _TALLY_NAME.match(name):
                raise InvalidLimit(
                    f"{name!r:.80} is not a valid name for a count: use 1 to 80 letters, digits and _ . : -."
                )
            args += [name, validation.whole(name, count, 0, validation.WIDEST)]
        reply = await self._shards.call("tally", self._shards.home(crawl_id), args)
        if reply[0] == Status.UNKNOWN:
            raise unknown_crawl(crawl_id)
        totals = {name.decode(errors="replace"): total for name, total in zip(reply[1::2], reply[2::2], strict=True)}
        return {name: totals[name] for name in sorted(totals)}

    async def repair(self, crawl: Crawl) -> None:
        """Bring every shard to the version that the crawl's home shard has.

        Needed when the process that changed the crawl died before every shard had the change.
        """
        await self._changes.repair(crawl)

    async def introduce(self, crawl_id: str, shard: int) -> Crawl:
        """Give a shard a copy of a crawl that it does not have, or a newer one."""
        return await self._changes.introduce(crawl_id, shard)

    def check_open(self, crawl: Crawl) -> None:
        check_open(crawl)
