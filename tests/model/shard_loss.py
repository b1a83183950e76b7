"""A fleet on a cluster in which one shard loses its last writes and the others do not (see machine.py).

One server holds all shards here. Which process serves a shard is read from a key instead of from the server, and a
shard is put back as it was some steps ago, under another process: that is what a failover or a stale copy does to it.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from shoal.frontier import journal, scripts, shards
from shoal.store import Script, Store
from tests.model.machine import CRAWLS, SHARDS, WORKERS, Fleet

_FIRST_PROCESS = "0123456789abcdef"
_PROCESS = f"""local function serverRun()
  return redis.call('GET', string.sub(KEYS[1], 1, -5) .. 'process') or '{_FIRST_PROCESS}'
end
local function unused()"""
_COPY = """
local out = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  out[#out + 1] = key
  out[#out + 1] = redis.call('DUMP', key)
end
return out
"""
_PUT_BACK = """
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end
for i = 2, #ARGV, 2 do redis.call('RESTORE', ARGV[i], 0, ARGV[i + 1]) end
"""
# How many steps a shard can lose, and how much time: the journal keeps links for two minutes.
_STEPS, _MOST_MS = 12, 60_000
_processes = itertools.count(1)


def read_process_from_key(monkeypatch: pytest.MonkeyPatch, change: Any = None) -> None:
    """Let scripts see one server process per shard; `change` plants a bug in them."""

    def patched(name: str) -> Script:
        source = scripts.script(name).source.replace("local function serverRun()", _PROCESS)
        return Script(name, change(name, source) if change else source)

    monkeypatch.setattr(shards, "script", patched)
    # Steps are repeated exactly only if nothing happens between them: `finished` replays.
    monkeypatch.setattr(journal, "_LINGER_SECONDS", 3600.0)


class ShardLoss(Fleet):
    restarts = False

    def __init__(self) -> None:
        super().__init__()
        # The time of a step, and each shard as it was then.
        self.copies: list[tuple[int, dict[int, list[bytes]]]] = []
        self.processes = dict.fromkeys(range(SHARDS), _FIRST_PROCESS)
        self.lost: set[int] = set()

    async def open_store(self) -> Store:
        store = await super().open_store()
        store.kind = "cluster"
        return store

    def _run(self, shard: int) -> str:
        return self.processes[shard]

    def _prefix(self, shard: int) -> str:
        return self.admin.shards.prefixes[shard]

    @invariant()
    def copy_all(self) -> None:
        if hasattr(self, "keys"):
            copies = {shard: self.server.ask("EVAL", _COPY, 0, self._prefix(shard) + "*") for shard in range(SHARDS)}
            self.copies = [*self.copies[1 - _STEPS :], (self.now, copies)]

    @precondition(lambda self: len(self.copies) > 4 and self.rollbacks < 3)
    @rule(shard=st.integers(0, SHARDS - 1), back=st.integers(1, _STEPS), away=st.sampled_from([0, 2500, 5000]))
    def lose_the_last_writes_of_a_shard(self, shard: int, back: int, away: int) -> None:
        recent = [at for at, (ms, kept) in enumerate(self.copies) if shard in kept and self.now - ms < _MOST_MS]
        if not recent:
            return
        at = recent[-min(back, len(recent))]
        self.server.ask("EVAL", _PUT_BACK, 0, self._prefix(shard) + "*", *self.copies[at][1][shard])
        for _, kept in self.copies[at + 1 :]:
            kept.pop(shard, None)
        self.processes[shard] = f"{next(_processes):016x}"
        self.server.ask("SET", self._prefix(shard) + "process", self.processes[shard])
        self.rollbacks += 1
        self.gates = {}
        self.lost.add(shard)
        if len(self.lost) > 1:
            # Seeds are kept by one other shard alone: their user adds them again.
            for crawl in CRAWLS:
                if self.seeds[crawl]:
                    self._admit(self.admin, crawl, self.seeds[crawl])
        # A maintainer of the crawls comes by.
        for crawl in CRAWLS:
            self.do(self.admin.crawls.repair(self.do(self.admin.crawls.get(crawl))))
        self._pass(away)
        for worker in WORKERS:
            self.work(worker, 5000, [])

    def drain(self) -> None:
        super().drain()
        for crawl in CRAWLS:
            links = [link for (of, _), crawl_links in self.links.items() if of == crawl for link in crawl_links]
            if links:
                lost = self._admit(self.admin, crawl, links)
                assert lost == 0, f"L1: {lost} of {len(links)} links of {crawl} are lost"
