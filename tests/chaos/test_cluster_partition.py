"""A cluster primary is cut off from its peers but not from its clients, and is replaced without its knowledge."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.store import Script, Store, slot_of
from tests.chaos.divided_cluster import divided_cluster
from tests.servers import WAIT_SECONDS, Server, cluster, redis_server, wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.full]
ADD = Script("add", "return redis.call('SADD', KEYS[1], ARGV[1])")
READ = Script("read", "return redis.call('SMEMBERS', KEYS[1])")
# A key of the first primary's slots.
KEY = next(key for number in range(100) if slot_of(key := f"{{{number}}}:set") < 5000)


@pytest.mark.smoke
async def test_clients_leave_a_partitioned_primary_for_its_successor(tmp_path: Path) -> None:
    with divided_cluster(tmp_path) as divided:
        old = divided.nodes[0]
        # The partition lasts until the end of the test, so a call that waits for its end fails.
        async with await Store.open(divided.url, timeout_seconds=WAIT_SECONDS) as store:
            await store.call(ADD, KEY, ["before"], replicated=True)
            cutting = asyncio.create_task(asyncio.to_thread(divided.cut_off))
            confirmed = 0
            while not cutting.done():
                # The old primary still accepts writes at first, but no replica confirms them.
                await store.call(ADD, KEY, [confirmed], replicated=True)
                confirmed += 1
                await asyncio.sleep(0.01)
            await cutting
            await store.call(ADD, KEY, ["after"], replicated=True)
            members = await asyncio.to_thread(divided.successor.ask, "SMEMBERS", KEY)
            assert set(members) >= {b"before", b"after", *(b"%d" % number for number in range(confirmed))}
            assert waits(old) < confirmed + 20


@pytest.mark.smoke
async def test_the_slot_map_of_a_partitioned_node_is_not_used(tmp_path: Path) -> None:
    with divided_cluster(tmp_path) as divided:
        divided.cut_off()
        assert divided.url.startswith(f"redis+cluster://127.0.0.1:{divided.proxy_ports[0]},")
        async with await Store.open(divided.url, timeout_seconds=WAIT_SECONDS) as store:
            await store.call(ADD, KEY, ["after"], replicated=True)
            assert await asyncio.to_thread(divided.successor.ask, "SISMEMBER", KEY, "after") == 1


@pytest.mark.parametrize("binary", ["", pytest.param("redis-server", marks=pytest.mark.variant)])
async def test_a_script_waits_for_a_cluster_that_is_read_only_while_it_is_down(tmp_path: Path, binary: str) -> None:
    """There a script is not refused: it starts, and fails at its first write."""
    options = {"cluster-allow-reads-when-down": "yes"}
    with cluster(tmp_path, options=options, binary=redis_server() if binary else "") as nodes:
        here, *others = nodes.nodes
        async with await Store.open(nodes.url, timeout_seconds=WAIT_SECONDS) as store:
            await store.call(ADD, KEY, ["before"])
            for node in others:
                node.kill()
            await asyncio.to_thread(
                wait_until, lambda: b"cluster_state:fail" in here.ask("CLUSTER", "INFO"), "the cluster is down"
            )
            calls = script_calls(here)
            adding = asyncio.create_task(store.call(ADD, KEY, ["after"]))
            await asyncio.to_thread(wait_until, lambda: script_calls(here) > calls, "the script was started")
            assert await store.call(READ, KEY, []) == [b"before"]
            assert not adding.done()
            for node in others:
                await asyncio.to_thread(node.start)
            await adding
            assert set(await store.call(READ, KEY, [])) == {b"before", b"after"}


def script_calls(server: Server) -> int:
    """How often a script was run."""
    stats = server.info("commandstats")
    runs = (stats.get(f"cmdstat_{name}", "calls=0,") for name in ("eval", "evalsha"))
    return sum(int(text[len("calls=") :].partition(",")[0]) for text in runs)


def waits(server: Server) -> int:
    """How often WAIT was called."""
    return int(server.info("commandstats").get("cmdstat_wait", "calls=0,")[len("calls=") :].partition(",")[0])
