"""A cluster primary is cut off from its peers but not from its clients, and is replaced behind its back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.store import Script, Store, slot_of
from tests.chaos.divided_cluster import divided_cluster
from tests.servers import WAIT_SECONDS, Server

pytestmark = [pytest.mark.chaos, pytest.mark.full]
ADD = Script("add", "return redis.call('SADD', KEYS[1], ARGV[1])")
# A key of the first primary's slots.
KEY = next(key for number in range(100) if slot_of(key := f"{{{number}}}:set") < 5000)


@pytest.mark.smoke
async def test_a_primary_that_is_cut_off_is_left_for_its_successor(tmp_path: Path) -> None:
    with divided_cluster(tmp_path) as cluster:
        old = cluster.nodes[0]
        # The partition lasts until the end of the test, so a call that waits for its end fails.
        async with await Store.open(cluster.url, timeout_seconds=WAIT_SECONDS) as store:
            await store.call(ADD, KEY, ["before"], replicated=True)
            cutting = asyncio.create_task(asyncio.to_thread(cluster.cut_off))
            confirmed = 0
            while not cutting.done():
                # The old primary still accepts writes at first, but no replica confirms them.
                await store.call(ADD, KEY, [confirmed], replicated=True)
                confirmed += 1
                await asyncio.sleep(0.01)
            await cutting
            await store.call(ADD, KEY, ["after"], replicated=True)
            members = await asyncio.to_thread(cluster.successor.ask, "SMEMBERS", KEY)
            assert set(members) >= {b"before", b"after", *(b"%d" % number for number in range(confirmed))}
            assert waits(old) < confirmed + 20


@pytest.mark.smoke
async def test_the_slot_map_of_a_node_that_is_cut_off_is_not_used(tmp_path: Path) -> None:
    with divided_cluster(tmp_path) as cluster:
        cluster.cut_off()
        assert cluster.url.startswith(f"redis+cluster://127.0.0.1:{cluster.doors[0]},")
        async with await Store.open(cluster.url, timeout_seconds=WAIT_SECONDS) as store:
            await store.call(ADD, KEY, ["after"], replicated=True)
            assert await asyncio.to_thread(cluster.successor.ask, "SISMEMBER", KEY, "after") == 1


def waits(server: Server) -> int:
    """How often WAIT was called."""
    return int(server.info("commandstats").get("cmdstat_wait", "calls=0,")[len("calls=") :].partition(",")[0])
