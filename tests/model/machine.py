"""Random fleets on the real scripts, a real server and a virtual clock.

A step is something that happens to a fleet: URLs are added, a worker leases, starts a request, ends it, acknowledges,
freezes, dies; an operator pauses, blocks, postpones; the store restarts and has lost its last writes. Requests are
only noted, with the moments they start and end: that log is the judge of politeness, as a web server's would be.
After every step the state of the store is read past the frontier and checked (snapshot.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal.errors import CrawlEnded, LeaseLost
from shoal.frontier.frontier import Frontier
from shoal.frontier.shards import Shards
from shoal.model import Lease, Limits, Outcome, Visit
from shoal.model.page_history import PageHistory
from shoal.model.visit import Added
from shoal.store import Store
from tests.model import snapshot
from tests.servers import Server

SHARDS = 3
LEASE_SECONDS = 2.0
LEASE_MS, MARGIN_MS = 2000, 10
HOSTS = [f"h{number}.example" for number in range(6)]
TWO_PLACES = {"h0.example", "h1.example"}
CRAWLS = ("one", "two")
WORKERS = ("ann", "bob", "cy")
_namespaces = itertools.count()


@dataclass(eq=False)
class Request:
    """As a web server sees it."""

    start: int
    place: bytes
    end: int | None = None


@dataclass(eq=False)
class Held:
    """A lease as its holder knows it."""

    lease: Lease
    place: bytes
    trusted_until: int
    todo: list[Visit]
    fetched: list[Visit] = field(default_factory=list)
    request: Request | None = None
    last_end: int | None = None


class Fleet(RuleBasedStateMachine):
    """`server` is set by the test that runs it; a hunt for one bug goes without what it does not need."""

    server: Server
    steps = 0
    broken = ""
    operators = True
    restarts = True
    drains = True

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.now = 1_000_000
        self.namespace = f"m{next(_namespaces)}"
        self.log: dict[str, list[Request]] = {host: [] for host in HOSTS}
        self.held: dict[str, list[Held]] = {worker: [] for worker in WORKERS}
        self.dead_held: dict[str, bool] = {}
        self.frozen: set[str] = set()
        self.tokens: set[str] = set()
        self.backoff: dict[str, int] = {}
        self.operator = False
        self.rollbacks = 0
        self.gates: dict[str, int] = {}
        self.shards: dict[str, snapshot.Shard] = {}
        self.lengths: list[int] = []
        self.paths = itertools.count()
        self.seeds: dict[str, list[Visit]] = {crawl: [] for crawl in CRAWLS}
        # By crawl and URL of a page.
        self.links: dict[tuple[str, str], list[Visit]] = {}

    def do(self, call: Any) -> Any:
        return self.loop.run_until_complete(call)

    @initialize(
        delays=st.tuples(st.sampled_from([0, 100, 700]), st.sampled_from([0, 300])),
        pages=st.sampled_from([0, 0, 3, 8]),
        per_host=st.sampled_from([0, 0, 2]),
        order=st.sampled_from(["fifo", "lifo"]),
        priority=st.sampled_from([0, 0, 1]),
        every=st.sampled_from(["", "2s", "1s..9s"]),
    )
    def create_crawls(
        self, delays: tuple[int, int], pages: int, per_host: int, order: str, priority: int, every: str
    ) -> None:
        self.every = every
        self.delays = dict(zip(CRAWLS, delays, strict=True))
        self.store = self.do(self.open_store())
        shards = self.do(Shards.found(self.store, self.namespace, SHARDS, lambda: self.now))
        self.workers = {
            name: Frontier(shards, worker=name, lease_seconds=LEASE_SECONDS, expiries=200, blames=3) for name in WORKERS
        }
        self.admin = Frontier(shards, worker="admin", lease_seconds=LEASE_SECONDS)
        for frontier in self.workers.values():
            frontier._leasing.turn = 0  # a run is repeated step by step
        self.do(
            self.admin.crawls.create(
                "one", Limits(delay_seconds=delays[0] / 1000, max_pages=pages, places=2, order=order)
            )
        )
        second = Limits(
            delay_seconds=delays[1] / 1000, max_pages_per_host=0 if every else per_host, priority=priority, places=2,
            order=order, every=every, budget="50%" if every else "",
        )  # fmt: skip
        self.do(self.admin.crawls.create("two", second))
        self.keys = {name: self.do(self.admin.crawls.get(name)).key for name in CRAWLS}
        for host in TWO_PLACES:
            self.do(self.admin.hosts.set_robots(host))

    async def open_store(self) -> Store:
        return await Store.open(self.server.url)

    # What crawlers do

    @rule(
        crawl=st.sampled_from(CRAWLS),
        hosts=st.lists(st.sampled_from(HOSTS), min_size=1, max_size=6),
        priority=st.sampled_from([0, 0, 0, 5, -3]),
        old=st.booleans(),
    )
    def add(self, crawl: str, hosts: list[str], priority: int, old: bool) -> None:
        self._add(crawl, hosts, priority, old)

    def _add(self, crawl: str, hosts: list[str], priority: int = 0, old: bool = False) -> None:
        visits = [Visit(url=f"http://{host}/{0 if old else next(self.paths)}", priority=priority) for host in hosts]
        self.seeds[crawl] += visits
        self._admit(self.admin, crawl, visits)

    def _admit(
        self, frontier: Frontier, crawl: str, visits: list[Visit], found_on: list[tuple[Lease, Visit]] | None = None
    ) -> int:
        """Add visits; returns how many are new."""
        try:
            added: Added = self.do(frontier.add(crawl, visits, found_on=found_on))
        except CrawlEnded:
            self.judge_refusal(crawl)
            return 0
        return added.new

    def judge_refusal(self, crawl: str) -> None:
        assert self.do(self.admin.crawls.get(crawl)).state.value in ("stopped", "finished")

    def _add_links(self, worker: str, held: Held, pages: list[Visit], hosts: list[str]) -> None:
        """A page has the same links whenever it is visited. All of a batch are found on its first page."""
        page = pages[0]
        if (page.crawl, page.url) not in self.links:
            self.links[page.crawl, page.url] = [Visit(url=f"http://{host}/{next(self.paths)}") for host in hosts]
        for visit in pages:
            if links := self.links.get((visit.crawl, visit.url)):
                self._admit(self.workers[worker], visit.crawl, links, [(held.lease, visit)] * len(links))

    @rule(worker=st.sampled_from(WORKERS), hosts=st.integers(1, 4), visits=st.integers(1, 4))
    def lease(self, worker: str, hosts: int, visits: int) -> None:
        if worker in self.frozen:
            return
        leases: list[Lease] = self.do(self.workers[worker].lease(hosts=hosts, visits=visits))
        for lease in leases:
            assert lease.token not in self.tokens, f"token {lease.token} is given out twice"
            assert self.now >= self.backoff.get(lease.host, 0), (
                f"I10: {lease.host} is leased before its back-off is over"
            )
            self.tokens.add(lease.token)
            place = self._shard(lease).leases[lease.token]["place"]
            self.held[worker].append(Held(lease, place, self.now + LEASE_MS - MARGIN_MS, list(lease.visits)))

    def _candidate(self, worker: str, pick: int, ready: Any) -> Held | None:
        candidates = [held for held in self.held[worker] if ready(held)]
        return candidates[pick % len(candidates)] if candidates and worker not in self.frozen else None

    @rule(worker=st.sampled_from(WORKERS), pick=st.integers(0, 9), takes=st.sampled_from([0, 1, 50, 400, 5000]))
    def fetch(self, worker: str, pick: int, takes: int) -> None:
        """Start the next request of a lease. 5000: it is still open when other things happen."""
        held = self._candidate(worker, pick, lambda h: h.todo and h.request is None)
        if held is None:
            return
        gap = round(held.lease.delay_seconds * 1000)
        if held.last_end is not None and self.now < held.last_end + gap:
            self._pass(held.last_end + gap - self.now)
        if self.now >= held.trusted_until:
            return
        visit = held.todo.pop(0)
        self._judge_start(visit, held)
        held.request = Request(self.now, held.place)
        self.log[held.lease.host].append(held.request)
        held.fetched.append(visit)
        if takes < 5000:
            self._pass(takes)
            if held.request is not None:
                self._end(held, self.now)

    def _judge_start(self, visit: Visit, held: Held) -> None:
        """I1: no more requests are open than there are places. I2: each place keeps the gap for itself."""
        host, delay = held.lease.host, self.delays[visit.crawl]
        places = 2 if host in TWO_PLACES else 1
        still_open = [r for r in self.log[host] if r.end is None]
        assert len(still_open) < places, f"I1: {host} gets a request at {self.now}, open: {still_open}"
        recent = [r for r in self.log[host] if r.place == held.place and (r.end is None or r.end + delay > self.now)]
        assert not recent, f"I2: {host} gets a request at {self.now} with delay {delay} after {recent}"

    def _end(self, held: Held, at: int) -> None:
        assert held.request is not None
        held.request.end = at
        held.request = None
        held.last_end = at

    @rule(worker=st.sampled_from(WORKERS), pick=st.integers(0, 9))
    def finish(self, worker: str, pick: int) -> None:
        held = self._candidate(worker, pick, lambda h: h.request is not None)
        if held is not None:
            self._end(held, self.now)

    @rule(
        worker=st.sampled_from(WORKERS),
        pick=st.integers(0, 9),
        how=st.sampled_from("sssfxrvpppp"),
        links=st.lists(st.sampled_from(HOSTS), max_size=3),
        most=st.integers(1, 4),
    )
    def acknowledge(self, worker: str, pick: int, how: str, links: list[str], most: int) -> None:
        held = self._candidate(worker, pick, lambda h: h.fetched and h.request is None)
        if held is None:
            return
        done, held.fetched = held.fetched[:most], held.fetched[most:]
        self._add_links(worker, held, done, links)
        self._acknowledge(worker, held, done, how)

    def _acknowledge(self, worker: str, held: Held, done: list[Visit], how: str) -> None:
        shard = self._shard(held.lease)
        known = shard.leases.get(held.lease.token, {})
        if not held.lease.token.startswith(self._run(held.lease.shard)):
            known = {}  # the store has lost writes since: leases of the process before are over
        accepted = sum(str(visit.number) in known for visit in done)
        before = self._ended()
        outcomes = {
            "s": lambda v: v.stored(),
            "v": lambda v: v.stored(revisit_seconds=1),
            "p": self._scheduled,
            "f": lambda v: v.failed("broken"),
            "x": lambda v: v.excluded("robots"),
            "r": lambda v: v.retry(0.4),
        }
        ago = None if held.last_end is None else (self.now - held.last_end) / 1000
        lost = False
        try:
            self.do(
                self.workers[worker].acknowledge(
                    held.lease, [outcomes[how](v) for v in done], finished_ago_seconds=ago, success=how == "s"
                )
            )
        except LeaseLost:
            lost = True
        assert lost == (not known), f"I7: token {held.lease.token} is {'known' if known else 'unknown'}, lost is {lost}"
        if how != "r":
            self.shards = snapshot.read(self.server, self.namespace)
            assert self._ended() - before == accepted, f"I7: {accepted} visits could be acknowledged"
        if lost or not (held.todo or held.fetched):
            self.held[worker].remove(held)

    def _scheduled(self, visit: Visit) -> Outcome:
        """A page of a perpetual crawl: it goes to the calendar, and changes its class by and by."""
        visits = visit.history.visits + 1 if visit.history else 1
        return visit.scheduled(PageHistory(rate_mean=visits * 3 % 256, rate_precision=0, visits=visits), 2.0)

    @rule(
        worker=st.sampled_from(WORKERS),
        takes=st.sampled_from([0, 60, 5000]),
        links=st.lists(st.sampled_from(HOSTS), max_size=2),
        how=st.sampled_from("sp"),
    )
    def work(self, worker: str, takes: int, links: list[str], how: str = "s") -> None:
        """A whole round of a worker that nothing happens to: lease, fetch, add the links, acknowledge."""
        self.lease(worker, 3, 2)
        for held in list(self.held[worker]):
            if worker in self.frozen or held.request is not None:
                continue
            while held.todo and held.request is None and self.now < held.trusted_until:
                self.fetch(worker, self._index(worker, held), takes)
            if held.fetched and held.request is None:
                done, held.fetched = held.fetched, []
                self._add_links(worker, held, done, links)
                self._acknowledge(worker, held, done, how)

    @rule(worker=st.sampled_from(WORKERS), how=st.sampled_from("psfxrv"))
    def visit_pages_again(self, worker: str, how: str) -> None:
        """Pages of a perpetual crawl get their history, are due, and the second visit ends in any way."""
        self.work(worker, 0, [], "p")
        self._pass(3000)
        self.work(worker, 0, [], how)

    @rule(worker=st.sampled_from(WORKERS), crawl=st.sampled_from(CRAWLS))
    def find_a_link_to_a_host_just_asked(self, worker: str, crawl: str) -> None:
        """Nothing waits there any more, and it has hardly rested."""
        for host in HOSTS:
            if self.log[host] and self.now - 100 < (self.log[host][-1].end or 0):
                self._add(crawl, [host])
        self.work(worker, 0, [])

    def _index(self, worker: str, held: Held) -> int:
        """Where `fetch` finds this lease."""
        return [h for h in self.held[worker] if h.todo and h.request is None].index(held)

    @rule(worker=st.sampled_from(WORKERS), visits=st.integers(0, 4))
    def renew(self, worker: str, visits: int) -> None:
        mine = [h for h in self.held[worker] if self.now < h.trusted_until]
        if not mine or worker in self.frozen:
            return
        for held, lease in zip(
            mine, self.do(self.workers[worker].renew([h.lease for h in mine], visits=visits)), strict=True
        ):
            assert lease is not None or self.rollbacks, "a lease is lost while its holder trusts it"
            if lease is not None:
                known = {visit.number for visit in held.lease.visits}
                held.trusted_until = self.now + LEASE_MS - MARGIN_MS
                held.todo += [visit for visit in lease.visits if visit.number not in known]
                held.lease = Lease(
                    lease.token, lease.shard, lease.host, lease.delay_seconds, lease.epoch, 0.0,
                    (*held.lease.visits, *lease.visits),
                )  # fmt: skip

    @rule(worker=st.sampled_from(WORKERS), pick=st.integers(0, 9))
    def release(self, worker: str, pick: int) -> None:
        held = self._candidate(worker, pick, lambda h: h.request is None)
        if held is None:
            return
        ago = None if held.last_end is None else (self.now - held.last_end) / 1000
        self.do(self.workers[worker].release([held.lease], keep=held.fetched, finished_ago_seconds=ago))
        held.todo.clear()
        if not held.fetched:
            self.held[worker].remove(held)

    # What goes wrong

    @rule(worker=st.sampled_from(WORKERS), reaped=st.booleans(), blame=st.booleans())
    def crash(self, worker: str, reaped: bool, blame: bool) -> None:
        """The process is gone, its open requests with it. A supervisor may notice at once."""
        if worker in self.frozen:
            return
        guilty = ("", 0)
        for held in self.held[worker]:
            if held.request is not None:
                self._end(held, self.now)
            if held.fetched and blame:
                guilty = (held.lease.token, held.fetched[-1].number)
        self.held[worker].clear()
        self.workers[worker]._journal._noted.clear()
        if reaped:
            self.do(self.admin.reap(worker, token=guilty[0], number=guilty[1]))

    @rule(worker=st.sampled_from(WORKERS))
    def freeze(self, worker: str) -> None:
        """Between requests only: that a transfer frozen in its middle may overlap once is the documented limit."""
        if all(held.request is None for held in self.held[worker]):
            self.frozen.add(worker)

    @rule(worker=st.sampled_from(WORKERS))
    def thaw(self, worker: str) -> None:
        self.frozen.discard(worker)

    @rule(worker=st.sampled_from(WORKERS), other=st.sampled_from(WORKERS))
    def sleep_through_a_lease(self, worker: str, other: str) -> None:
        """Stopped for longer than its leases; another worker has its hosts when it continues."""
        self.freeze(worker)
        self._pass(LEASE_MS + 1000)
        self.lease(other, 6, 4)
        self.thaw(worker)

    @rule(worker=st.sampled_from(WORKERS), pick=st.integers(0, 5), off=st.sampled_from([0, 0, 1]))
    def work_when_something_changes(self, worker: str, pick: int, off: int) -> None:
        """Advance to a moment the store waits for: a host is ready, a lease is over, a retry is due."""
        moments = {
            int(moment)
            for shard in self.shards.values()
            for kind in (*shard.ready.values(), shard.deadlines, shard.later, shard.calendar)
            for moment in kind.values()
            if moment > self.now
        }
        if moments:
            soon = sorted(moments)
            self._pass(soon[min(pick, len(soon) - 1)] + off - self.now)
        self.work(worker, 5000, [])

    @rule(ms=st.sampled_from([1, 30, 99, 100, 250, 700, 1500, 2500]))
    def tick(self, ms: int) -> None:
        self._pass(ms)

    def _pass(self, ms: int) -> None:
        self.now += ms
        for mine in self.held.values():
            for held in mine:
                if held.request is not None and self.now >= held.trusted_until:
                    self._end(held, held.trusted_until)

    @precondition(lambda self: self.restarts and len(self.lengths) > 8 and self.rollbacks < 2)
    @rule(back=st.integers(0, 5), away=st.sampled_from([0, 2500, 5000]))
    def lose_the_last_writes(self, back: int, away: int) -> None:
        """The store dies and comes back from an earlier prefix of its append-only file."""
        self.server.kill()
        (part,) = Path(self.server.folder).glob("appendonlydir/*.incr.aof")
        with part.open("r+b") as file:
            file.truncate(self.lengths[-1 - back])
        del self.lengths[len(self.lengths) - back :]
        self.server.start()
        self._pass(away)
        self.rollbacks += 1
        self.gates = {}
        for worker in WORKERS:
            self.work(worker, 5000, [])

    # What operators do

    @precondition(lambda self: self.operators)
    @rule(crawl=st.sampled_from(CRAWLS))
    def pause(self, crawl: str) -> None:
        self._steer(self.admin.crawls.pause(crawl))

    @precondition(lambda self: self.operators)
    @rule(crawl=st.sampled_from(CRAWLS))
    def resume(self, crawl: str) -> None:
        self._steer(self.admin.crawls.resume(crawl))

    @precondition(lambda self: self.operators and len(self.lengths) > 25)
    @rule()
    def stop(self) -> None:
        self._steer(self.admin.crawls.stop("two"))

    @precondition(lambda self: self.operators)
    @rule(crawl=st.sampled_from(CRAWLS))
    def retry(self, crawl: str) -> None:
        self._steer(self.admin.crawls.retry(crawl))
        # A back-off that followed from failures ends with their retry. The gates of the host's places stay.
        left = snapshot.gates(snapshot.read(self.server, self.namespace))
        for name in [name for name in self.gates if name.endswith("/b") and name not in left]:
            del self.gates[name]
            self.backoff.pop(name.removesuffix("/b"), None)

    @precondition(lambda self: self.operators)
    @rule(crawl=st.sampled_from(CRAWLS))
    def close_if_finished(self, crawl: str) -> None:
        self.do(self.admin._journal.replay())
        self.shards = snapshot.read(self.server, self.namespace)
        was_open = self._open(crawl)
        try:
            closed = self.do(self.admin.crawls.finish(crawl))
        except CrawlEnded:
            return
        expected = was_open == 0 and not self._perpetual(crawl)
        assert closed == expected, f"L4: {was_open} visits of {crawl} are open, finished says {closed}"

    def _steer(self, call: Any) -> None:
        with contextlib.suppress(CrawlEnded):
            self.do(call)

    @precondition(lambda self: self.operators)
    @rule(host=st.sampled_from(HOSTS), ms=st.sampled_from([200, 1000]), failed=st.booleans())
    def postpone(self, host: str, ms: int, failed: bool) -> None:
        self.do(self.admin.hosts.postpone(host, ms / 1000, failed=failed, host_failures=4))
        self.backoff[host] = max(self.backoff.get(host, 0), self.now + ms)

    @precondition(lambda self: self.operators)
    @rule(host=st.sampled_from(HOSTS))
    def block_and_unblock(self, host: str) -> None:
        self.do(self.admin.hosts.block(host))
        self.check_all()
        self.do(self.admin.hosts.unblock(host))
        self.backoff.pop(host, None)
        self.operator = True

    def _sum(self, prefix: str, key: str, fields: str) -> int:
        shard = self.shards[prefix]
        return sum(shard.number(key, f) for f in fields) if key in shard.crawls else 0

    def _open(self, crawl: str) -> int:
        return sum(self._sum(p, self.keys[crawl], "wlt") for p in self.shards)

    def _perpetual(self, crawl: str) -> bool:
        """Whether a crawl stays open when nothing waits."""
        return crawl == "two" and bool(self.every) and self.do(self.admin.crawls.get(crawl)).state.open

    def _left(self, crawl: str) -> int:
        """Open visits, and pages in the calendar."""
        key = self.keys[crawl]
        return self._open(crawl) + sum(s.number(key, "sc") for s in self.shards.values() if key in s.crawls)

    def _shown(self, crawl: str) -> str:
        return "\n".join(
            f"{p}: {vars(shard)}" for p, shard in self.shards.items() if self._sum(p, self.keys[crawl], "wlt")
        )

    def _run(self, shard: int) -> str:
        """The server process that holds a shard."""
        return self.server.info("server")["run_id"][:8] + self.server.info("replication")["master_replid"][:8]

    def _ended(self) -> int:
        return sum(self._sum(p, key, "sfx") for p in self.shards for key in self.keys.values())

    def _shard(self, lease: Lease) -> snapshot.Shard:
        prefix = self.admin.shards.prefixes[lease.shard].rstrip("}")
        self.shards = snapshot.read(self.server, self.namespace)
        return self.shards[prefix]

    @invariant()
    def check_all(self) -> None:
        if not hasattr(self, "keys"):
            return
        Fleet.steps += 1
        self.shards = snapshot.read(self.server, self.namespace)
        snapshot.check(self.shards)
        now = snapshot.gates(self.shards)
        if not self.operator:
            for name, gate in self.gates.items():
                assert now.get(name, 0) >= gate, f"I10: the gate {name} moved from {gate} to {now.get(name, 0)}"
        self.gates, self.operator = now, False
        (part,) = Path(self.server.folder).glob("appendonlydir/*.incr.aof")
        self.lengths.append(part.stat().st_size)

    def teardown(self) -> None:
        try:
            failure = sys.exception()
            if failure is None and self.drains and hasattr(self, "keys"):
                self.drain()
            elif isinstance(failure, AssertionError):
                Fleet.broken = str(failure)
        except AssertionError as error:
            Fleet.broken = str(error)
            raise
        finally:
            if hasattr(self, "admin"):
                for frontier in (self.admin, *self.workers.values()):
                    self.do(frontier.close())
            if hasattr(self, "store"):
                self.do(self.store.close())
            self.loop.close()
            self.server.ask(
                "EVAL",
                "for _, k in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('UNLINK', k) end",
                0,
                self.namespace + "{*",
            )

    def drain(self) -> None:
        """L1, L4: with everybody at work every visit ends, and exactly then the crawl is finished."""
        self.frozen.clear()
        for crawl in CRAWLS:
            self._steer(self.admin.crawls.resume(crawl))
        for _ in range(400):
            # A check that finds links to replay does not wait for their effect: it reports an unfinished crawl.
            self.do(self.admin._journal.replay())
            finished = [self.do(self.admin.crawls.finished(crawl)) for crawl in CRAWLS]
            self.check_all()
            assert finished == [self._open(crawl) == 0 and not self._perpetual(crawl) for crawl in CRAWLS], "L4"
            if all(self._left(crawl) == 0 for crawl in CRAWLS):
                break
            for worker in WORKERS:
                for held in list(self.held[worker]):
                    if held.request is not None:
                        self._end(held, self.now)
                self.work(worker, 1, [])
                self.held[worker] = [held for held in self.held[worker] if self.now < held.trusted_until]
            self._pass(500)
        for crawl in CRAWLS:
            assert self._left(crawl) == 0, f"L1: {self._left(crawl)} visits of {crawl} never end: {self._shown(crawl)}"
            over = not self._perpetual(crawl)
            assert self.do(self.admin.crawls.finished(crawl)) == over, "L4: nothing is open, but it is not finished"
