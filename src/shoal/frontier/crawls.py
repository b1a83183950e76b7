"""Crawls: create, pause, resume, stop, count, delete. The record is at the home shard; others have versioned copies.

A change is written at the home shard first, then copied to the shards that have a copy. If the process dies in between,
some shards keep the old version until the Maintainer calls `repair`.

URLs that a spider sends to another spider wait in a branch: a crawl of its own, `<crawl>:<spider>`, that is counted,
changed and finished together with its crawl.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import msgspec

from shoal.errors import CrawlEnded, CrawlExists, InvalidInput, InvalidLimit, StoreCorrupt, UnknownCrawl
from shoal.frontier import deletion, keys, visit_codec
from shoal.frontier.crawl_codec import copy_fields, crawl_of, limits_of, packed, reasons_now, removed_fields
from shoal.frontier.crawl_facts import CrawlFacts
from shoal.frontier.failures import FailureChoice, FailureCursor, failures, retry_chosen
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards
from shoal.model import validation
from shoal.model.crawl import STATES, Counts, Crawl, CrawlKind, State
from shoal.model.crawl_spec import Limits
from shoal.model.visit import Visit
from shoal.urls.canonical import canonical
from shoal.urls.fingerprint import fingerprint, host_bits, pass_mark, shard_of

_TALLY_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,80}\Z")
# The reason of a crawl that finished without reaching a limit; change.lua reopens only such a crawl.
_NOTHING_LEFT = "finished"
# The cache keeps so many; the oldest is read from the store again.
_MOST_KNOWN = 2000


class Crawls:
    """Reached as `frontier.crawls`."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self.facts = CrawlFacts(shards)
        self._by_id: dict[str, Crawl] = {}
        self._by_key: dict[str, Crawl] = {}
        # Adds links again that a shard may have lost; returns how many there were.
        self.replay_links: Callable[[], Awaitable[int]] | None = None
        shards.on_replaced += [self._by_id.clear, self._by_key.clear]

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

    async def get(self, crawl_id: str) -> Crawl:
        """The current record of the crawl, from its home shard."""
        return self._keep(await self._record(self._shards.home(validation.crawl_id(crawl_id)), crawl_id, ""))

    async def by_key(self, key: str) -> Crawl:
        """The crawl with this key, cached."""
        known = self._by_key.get(key)
        return known or self._keep(await self._record(keys.home_of(key), "", key))

    def cached(self, key: str) -> bool:
        """Whether `by_key` returns this crawl without a call."""
        return key in self._by_key

    async def known(self, crawl_id: str) -> Crawl:
        """As `get`, but cached: key and limits are used until a shard reports another version."""
        return self._by_id.get(validation.crawl_id(crawl_id)) or await self.get(crawl_id)

    async def all(self) -> AsyncIterator[Crawl]:
        """Every crawl that was not deleted, newest first in each shard."""
        for shard in range(self._shards.count):
            key = keys.crawls(self._shards.prefixes[shard])
            for crawl_id in await self._shards.store.command("ZREVRANGE", key, 0, -1, key=key):
                crawl = await self.get(crawl_id.decode())
                if crawl.state is not State.DELETED:
                    yield crawl

    async def branch(self, crawl_id: str, spider: str) -> str:
        """The id of the crawl's branch for another spider; the branch is created on first use."""
        crawl = await self.known(crawl_id)
        if validation.spider(spider) == crawl.limits.spider:
            return crawl_id
        name = validation.crawl_id(f"{crawl_id}:{spider}")
        made = self._by_id.get(name)
        if made is None:
            self.check_open(await self.get(crawl_id))
            limits = msgspec.structs.replace(crawl.limits, spider=spider)
            # Recorded before the branch has visits: a check whether the crawl is finished must see it.
            await self.facts.add_branch(crawl_id, spider)
            # The branch of a deleted crawl of the same name is deleted, too.
            made = await self.create(name, limits, {**crawl.spec, "parent": crawl_id}, exist_ok=True, reuse=True)
            # A process that pauses, resumes or stops the crawl at this moment may not have seen the branch.
            while made.state.open and made.parent == crawl_id:
                state = (await self.get(crawl_id)).state
                if state is made.state or state is State.DELETED:
                    break
                made = await self._change(name, state)
        if made.parent != crawl_id:
            raise InvalidInput(
                f"Crawl {crawl_id!r} cannot have a branch for spider {spider}: {name!r} is another crawl."
            )
        return name

    async def branches(self, crawl_id: str) -> list[str]:
        """The ids of a crawl's branches."""
        if not (await self.known(crawl_id)).limits.spider:
            return []
        found = []
        for spider in (await self.facts.read(crawl_id)).branches:
            # A branch that is about to be created has nothing in it yet.
            with contextlib.suppress(UnknownCrawl):
                branch = await self.known(f"{crawl_id}:{spider}")
                # A deleted one has no specification any more.
                found += [branch.id] if branch.parent == crawl_id else []
        return found

    async def pause(self, crawl_id: str, why: str = "") -> Crawl:
        """Pause: no further visit is leased, leased ones may finish. With a reason, a paused crawl keeps its reason."""
        return await self._change_all(crawl_id, State.PAUSED, why=why)

    async def resume(self, crawl_id: str, why: str = "") -> Crawl:
        """Resume; with a reason, only a crawl that was paused for this reason."""
        return await self._change_all(crawl_id, State.RUNNING, why=why)

    async def stop(self, crawl_id: str, why: str = "stopped") -> Crawl:
        """Stop: waiting visits are excluded, leased ones may finish, no URL is added any more."""
        return await self._change_all(crawl_id, State.STOPPED, why=why)

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
        return await self._change(crawl_id, crawl.state, spec=packed(limits, crawl.spec))

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
                await self._change(branch, State.STOPPED, why=crawl.why)
            await self.delete(branch)
        if crawl.state is State.EXPIRED:
            crawl = await self._at_home(crawl_id, State.EXPIRED, "expired", b"")
        await self._bring(crawl, crawl.why)
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
        """The counts of the crawl, summed over all shards: what its URLs are now.

        With `all_admissions`, a URL that failed and was retried is counted as failed, and again as what it is now: then
        no count of ended visits ever falls. With `within_seconds`, only shards that reply in time are counted.
        """
        totals = [0] * 10
        reasons: dict[str, int] = {}
        for reply in await self._count_all(crawl_id, within_seconds):
            for i, number in enumerate((*reply[3:10], *reply[11:14])):
                totals[i] += number
            for name, number in zip(reply[14::2], reply[15::2], strict=True):
                reason = name.decode(errors="replace")
                reasons[reason] = reasons.get(reason, 0) + (int(number) if number.isdigit() else 0)
        a, w, le, t, s, f, x, retried, readmitted, revisited = totals
        if all_admissions:
            retried = readmitted = revisited = 0
        return Counts(
            admitted=a - retried - readmitted - revisited, waiting=w, leased=le, later=t, stored=s - revisited,
            failed=f - retried, excluded=x - readmitted, reasons=reasons_now(reasons, all_admissions=all_admissions),
        )  # fmt: skip

    async def finished(self, crawl_id: str) -> bool:
        """True exactly when nothing is waiting, leased or due later in any shard.

        A perpetual crawl is not finished while it is open.

        Ended visits are read from all shards before admitted ones: a visit that ends in between has added its links
        before, so the sums cannot be equal too early. Branches are looked up each time for the same reason.
        """
        if (await self.known(crawl_id)).perpetual and (await self.get(crawl_id)).state.open:
            # Nobody else would add links again that a shard has lost.
            if self.replay_links is not None:
                await self.replay_links()
            return False
        ended, servers = await self._sum(crawl_id, slice(7, 10))
        if self.replay_links is not None and await self.replay_links():
            return False
        admitted, same_servers = await self._sum(crawl_id, slice(3, 4))
        return ended == admitted and servers == same_servers

    async def _sum(self, crawl_id: str, fields: slice) -> tuple[int, list[bytes]]:
        """A sum over all shards, and the server processes that answered: after a failover, counts may be older."""
        total, servers = 0, []
        for name in await self._family(crawl_id):
            for reply in (await self._count(await self.known(name))).values():
                if reply[0] == Status.OK:
                    total += sum(reply[fields])
                servers.append(reply[10 if reply[0] == Status.OK else 1])
        return total, servers

    async def finish(self, crawl_id: str) -> bool:
        """Close a finished crawl. False when visits are open, and the crawl continues; True if it had ended before."""
        if not await self.finished(crawl_id):
            return False
        if not (await self.get(crawl_id)).state.open:
            return True
        replies = []
        for name in await self._family(crawl_id):
            with contextlib.suppress(CrawlEnded):
                crawl = await self._at_home(name, State.FINISHED, _NOTHING_LEFT, b"")
                replies += await self._bring(crawl, _NOTHING_LEFT, mode="x")
        if all(reply[0] == Status.OK for reply in replies):
            return True
        # A visit was added between the check and the closing: reopen the shards that were closed.
        await self._change_all(crawl_id, State.RUNNING)
        return False

    async def end(self, crawl: Crawl, why: str) -> None:
        """Finish a crawl that has reached a limit: waiting visits are excluded with this reason."""
        await self._change_all(crawl.id, State.FINISHED, why=why)

    async def extend(self, crawl_id: str, limits: Limits, spec: dict[str, Any]) -> Crawl:
        """Raise limits of a crawl. One that had reached a limit continues, with the URLs that were kept for that.

        URLs that were set aside one by one, by limits of depth or of a host, are added by `set_aside.readmit`.
        """
        limits.check()
        for name in await self._family(crawl_id):
            crawl = await self.get(name)
            own = msgspec.structs.replace(limits, spider=crawl.limits.spider)
            own_spec = {**spec, "parent": crawl.parent} if crawl.parent else spec
            state = State.PAUSED if crawl.state is State.PAUSED else State.RUNNING
            pages = limits.max_pages if limits.max_pages != crawl.limits.max_pages else None
            changed = await self._at_home(name, state, "", packed(own, own_spec), pages)
            await self._bring(changed, "")
        return await self.get(crawl_id)

    async def retry(self, crawl_id: str, *, urls: Iterable[str] | None = None, reason: str = "") -> int:
        """Add failed visits again, all or those of these URLs or this reason; a finished crawl runs again.

        Returns how many. A choice of URLs or of a reason reads every failed visit of the crawl.
        """
        if urls is not None or reason:
            choice = FailureChoice(frozenset(canonical(url).url for url in urls or ()), reason)
            return await self._retry_chosen(crawl_id, choice) if reason or choice.urls else 0
        crawl = await self._reopened(crawl_id)
        total = 0
        for shard in range(self._shards.count):
            more, until = 1, ""
            while more:
                reply = await self._shards.call("retry", shard, (crawl.key, until, "f"), replicated=True)
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
        for name in await self._family(crawl_id):
            crawl = await self.known(name)
            # A crawl that has none of them is not reopened.
            async for _, visit, reason in failures(self._shards, crawl, FailureCursor(name), 1000):
                if choice.matches(visit, reason):
                    if name != crawl_id:
                        await self._reopened(crawl_id)
                    total += await retry_chosen(self._shards, await self._reopened(name), choice)
                    break
        return total

    async def _reopened(self, crawl_id: str) -> Crawl:
        crawl = await self.get(crawl_id)
        if crawl.state is State.FINISHED:
            crawl = await self._change(crawl_id, State.RUNNING)
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
        found: list[tuple[Visit, str]] = []
        last = behind = behind or FailureCursor(crawl_id)
        # In the order of their names: a branch that was deleted since is skipped.
        for name in [name for name in await self._family(crawl_id) if name >= behind.crawl]:
            begin = behind if name == behind.crawl else FailureCursor(name)
            async for place, visit, reason in failures(self._shards, await self.known(name), begin, most + 1):
                if len(found) == most:
                    return found, last
                found.append((visit, reason))
                last = place
        return found, None

    async def forget(self, crawl_id: str, urls: Iterable[str], *, passed: int = 0) -> int:
        """Let these URLs be visited again when they are added again. Returns how many were known.

        With `passed`, only their visit in the pass of that number is forgotten. Workers, which remember the links that
        they have added recently, learn of it within five seconds.
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
            # A new version: workers read it, and begin with no links.
            await self._bring(await self._at_home(crawl_id, crawl.state, crawl.why, b"", elsewhere=crawl.version), "")
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
            raise _unknown(crawl_id)
        totals = {name.decode(errors="replace"): total for name, total in zip(reply[1::2], reply[2::2], strict=True)}
        return {name: totals[name] for name in sorted(totals)}

    async def repair(self, crawl: Crawl) -> None:
        """Bring every shard to the version that the crawl's home shard has.

        Needed when the process that changed the crawl died before every shard had the change.
        """
        if crawl.state is not State.FINISHED or crawl.why != _NOTHING_LEFT:
            await self._bring(crawl, crawl.why)
        elif any(reply[0] != Status.OK for reply in await self._bring(crawl, _NOTHING_LEFT, mode="x")):
            # A visit came in before the crawl was closed everywhere: `finish` would have reopened it.
            await self._change_all(crawl.parent or crawl.id, State.RUNNING)

    async def introduce(self, crawl_id: str, shard: int) -> Crawl:
        """Give a shard a copy of a crawl that it does not have, or a newer one."""
        crawl = await self.get(crawl_id)
        self.check_open(crawl)
        await self._shards.call("sync", shard, _sync_args(crawl, "", "c"), replicated=True)
        return crawl

    def check_open(self, crawl: Crawl) -> None:
        if not crawl.state.open:
            raise CrawlEnded(f"Crawl {crawl.id!r} is {crawl.state.value}: it accepts no more URLs.")

    def drop_cache(self, crawl_id: str) -> None:
        if crawl := self._by_id.get(crawl_id):
            self._forget(crawl)

    async def _family(self, crawl_id: str) -> list[str]:
        return [crawl_id, *await self.branches(crawl_id)]

    async def _change_all(self, crawl_id: str, state: State, *, why: str = "") -> Crawl:
        crawl = await self._change(crawl_id, state, why=why)
        if crawl.state is not state:
            return crawl
        for branch in await self.branches(crawl_id):
            # A branch may have ended before the others, by a limit. Its crawl alone decides whether it continues.
            with contextlib.suppress(CrawlEnded):
                await self._change(branch, state, why="" if state.open else why)
        return crawl

    async def _change(self, crawl_id: str, state: State, *, why: str = "", spec: bytes = b"") -> Crawl:
        crawl = await self._at_home(crawl_id, state, why, spec)
        await self._bring(crawl, why)
        return crawl

    async def _at_home(
        self, crawl_id: str, state: State, why: str, spec: bytes, pages: int | None = None, elsewhere: int = 0
    ) -> Crawl:
        """`elsewhere`: the version of a shard that has a newer one than the home shard."""
        home = self._shards.home(validation.crawl_id(crawl_id))
        reason = visit_codec.brief(why, "") if why else ""
        args = (crawl_id, state.code, reason, spec, "" if pages is None else pages, elsewhere)
        reply = await self._shards.call("change", home, args, replicated=True)
        if reply[0] == Status.UNKNOWN:
            raise _unknown(crawl_id)
        if reply[0] == Status.ENDED:
            now = STATES[reply[1].decode()].value
            change = "resumed" if state is State.RUNNING else state.value
            raise CrawlEnded(f"Crawl {crawl_id!r} is {now} and cannot be {change}.")
        return await self.get(crawl_id)

    async def _bring(self, crawl: Crawl, why: str, mode: str = "u") -> list[list[Any]]:
        if crawl.state is State.DELETED:
            return []
        replies = await self._sync(crawl, why, mode)
        if any(_is_newer(reply, crawl) for reply in replies):
            # Another process has changed it since; or, in a cluster, its home shard has lost a change.
            crawl = await self.get(crawl.id)
            if newer := [reply for reply in replies if _is_newer(reply, crawl)]:
                await self._catch_up(crawl, newer)
                replies = await self._sync(await self.get(crawl.id), why, mode)
        return replies

    async def _catch_up(self, crawl: Crawl, newer: list[list[Any]]) -> None:
        """Let the home shard, which has lost writes, have the newest version. What it has applies.

        Except that a crawl stays stopped: its visits are excluded already.
        """
        states = {STATES[reply[2].decode()] for reply in newer}
        ended = states & {State.STOPPED, State.EXPIRED} if crawl.state.open else set()
        state = ended.pop() if ended else crawl.state
        version = max(reply[1] for reply in newer)
        await self._at_home(crawl.id, state, state.value if ended else crawl.why, b"", elsewhere=version)

    async def _sync(self, crawl: Crawl, why: str, mode: str) -> list[list[Any]]:
        args = _sync_args(crawl, why or crawl.state.value, mode)
        shards = range(self._shards.count)
        return list((await self._shards.call_all("sync", dict.fromkeys(shards, args), replicated=True)).values())

    async def _record(self, shard: int, crawl_id: str, key: str) -> Crawl:
        if shard >= self._shards.count:
            raise _unknown(crawl_id or key)
        reply = await self._shards.call("home", shard, (crawl_id, key))
        if reply[0] != Status.OK:
            raise _unknown(crawl_id or key)
        try:
            fields = {name.decode(): value for name, value in zip(reply[2::2], reply[3::2], strict=True)}
            return crawl_of(fields, reply[1])
        except (KeyError, ValueError, msgspec.MsgspecError) as error:
            raise StoreCorrupt(f"Invalid record of crawl {crawl_id or key} in the store: {error}.") from None

    async def _count_all(self, crawl_id: str, within_seconds: float | None = None) -> list[list[Any]]:
        """One reply of each shard that has the crawl or a branch of it."""
        names = await self._family(crawl_id)
        replies = [
            reply for name in names for reply in (await self._count(await self.known(name), within_seconds)).values()
        ]
        return [reply for reply in replies if reply[0] == Status.OK]

    async def _count(self, crawl: Crawl, within_seconds: float | None = None) -> dict[int, list[Any]]:
        args = dict.fromkeys(range(self._shards.count), (crawl.key,))
        return await self._shards.call_all("count", args, within_seconds=within_seconds)

    def _keep(self, crawl: Crawl) -> Crawl:
        if len(self._by_id) >= _MOST_KNOWN and crawl.id not in self._by_id:
            self._forget(next(iter(self._by_id.values())))
        self._by_id[crawl.id] = crawl
        self._by_key[crawl.key] = crawl
        return crawl

    def _forget(self, crawl: Crawl) -> None:
        self._by_id.pop(crawl.id, None)
        self._by_key.pop(crawl.key, None)


def _is_newer(reply: list[Any], crawl: Crawl) -> bool:
    """Whether a shard has a change of the crawl that its home shard does not have, or another one of this version."""
    if reply[0] != Status.OK:
        return False
    version, state = reply[1], reply[2].decode()
    other = state in (State.RUNNING.code, State.PAUSED.code) and state != crawl.state.code
    return bool(state) and (version > crawl.version or (version == crawl.version and other))


def _sync_args(crawl: Crawl, why: str, mode: str) -> tuple[str | int, ...]:
    return (crawl.key, crawl.version, crawl.state.code, why, mode, *copy_fields(crawl), *removed_fields(crawl))


def _unknown(crawl_id: str) -> UnknownCrawl:
    return UnknownCrawl(f"There is no crawl {crawl_id!r} in this store: create it first, or check its id.")
