"""Clusters and replicas: calls find their node through moved slots, and failovers lose nothing that was confirmed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.errors import StoreRefused, StoreUnavailable
from shoal.store import Script, Store, slot_of
from tests.servers import WAIT_SECONDS, Cluster, cluster, free_port, replicated, sentinel_trio, wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.full]
ADD = Script("add", "return redis.call('SADD', KEYS[1], ARGV[1])")
TAGS = [f"{{{n}}}:set" for n in range(30)]


@pytest.mark.smoke
async def test_a_batch_is_spread_over_the_nodes_and_its_replies_are_in_order(three_nodes: Cluster) -> None:
    async with await Store.open(three_nodes.url) as store:
        assert store.kind == "cluster"
        assert store.durable
        echo = Script("echo", "return KEYS[1]")
        assert await store.call_many([(echo, key, []) for key in TAGS]) == [key.encode() for key in TAGS]
        assert len({three_nodes.owner(slot_of(key)).port for key in TAGS}) == 3
        assert len({store.run_id(key) for key in TAGS}) == 3


async def test_one_node_is_enough_to_find_the_others(three_nodes: Cluster) -> None:
    async with await Store.open(f"redis+cluster://{three_nodes.nodes[1].where}") as store:
        assert len(await store.call_many([(ADD, key, ["one"]) for key in TAGS])) == 30


def test_slots_are_computed_as_the_server_does(three_nodes: Cluster) -> None:
    for key in ["", "a", "{a}b", "{}a", "x{y}{z}", "{{a}}", "{a", "é{ü}"]:
        assert slot_of(key) == three_nodes.nodes[0].ask("CLUSTER", "KEYSLOT", key)


async def test_a_cluster_node_given_as_a_plain_server_is_refused_with_a_suggestion(three_nodes: Cluster) -> None:
    async with await Store.open(three_nodes.nodes[0].url) as store:
        with pytest.raises(StoreRefused, match=r"redis\+cluster://"):
            await store.call_many([(ADD, key, ["x"]) for key in TAGS])


async def test_slots_move_under_load_and_no_call_is_lost(three_nodes: Cluster) -> None:
    async with await Store.open(three_nodes.url) as store:
        done = asyncio.Event()
        key = "{moving}:set"
        written = 0

        async def write() -> None:
            nonlocal written
            while not done.is_set():
                first = written
                written += 10
                assert await store.call_many([(ADD, key, [first + n]) for n in range(10)]) == [1] * 10

        writing = asyncio.create_task(write())
        slot = slot_of(key)
        for _ in range(2):
            source = three_nodes.owner(slot)
            target = next(node for node in three_nodes.nodes if node is not source)
            await asyncio.to_thread(three_nodes.move, slot, slot, target)
            await asyncio.sleep(0.05)
        done.set()
        await writing
        assert written > 0
        assert await store.command("SCARD", key, key=key) == written


async def test_while_a_slot_is_moved_key_by_key_commands_follow_and_scripts_wait(three_nodes: Cluster) -> None:
    async with await Store.open(three_nodes.url, timeout_seconds=WAIT_SECONDS) as store:
        key = "{asked}:set"
        await store.call(ADD, key, [1])
        slot = slot_of(key)
        source = three_nodes.owner(slot)
        target = next(node for node in three_nodes.nodes if node is not source)
        three_nodes.begin_move(slot, source, target)
        source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
        assert await store.command("SCARD", key, key=key) == 1
        # A script may need keys that are still at the source.
        calling = asyncio.create_task(store.call_many([(ADD, key, [1]), (ADD, key, [2])]))
        await asyncio.sleep(0.3)
        assert not calling.done()
        three_nodes.end_move(slot, source, target)
        assert await calling == [0, 1]


async def test_a_primary_of_a_cluster_that_dies_is_replaced(tmp_path: Path) -> None:
    # One replica each: after the failover there is none for one of them, so the check is satisfied by 0 there.
    with cluster(tmp_path, replicas=1, options={"min-replicas-to-write": "1"}) as six:
        async with await Store.open(six.url, timeout_seconds=20) as store:
            assert store.replicas == 3
            assert not store.durable
            await store.call_many([(ADD, key, ["before"]) for key in TAGS], replicated=True)
            victim = six.nodes[0]
            replica = next(
                node for node in six.nodes[3:] if node.info("replication")["master_port"] == str(victim.port)
            )
            replica.ask("CONFIG", "SET", "min-replicas-to-write", 0)
            victim.kill()
            replies = await store.call_many([(ADD, key, ["before"]) for key in TAGS])
            assert replies == [0] * 30


async def test_a_confirmed_write_has_reached_a_replica(tmp_path: Path) -> None:
    with replicated(tmp_path) as primary:
        async with await Store.open(primary.url, timeout_seconds=2) as store:
            assert store.replicas == 1
            assert not store.durable
            assert await store.call(ADD, "k", [1], replicated=True) == 1
            assert primary.peers[0].ask("SCARD", "k") == 1
            primary.peers[0].freeze()
            with pytest.raises(StoreUnavailable, match="no replica has confirmed"):
                await store.call(ADD, "k", [2], replicated=True)
            # Repeated on a new connection it changes nothing, and still has to wait for the first write.
            async with await Store.open(primary.url, timeout_seconds=1) as other:
                with pytest.raises(StoreUnavailable, match="no replica has confirmed"):
                    await other.call(ADD, "k", [2], replicated=True)
            primary.peers[0].thaw()
            assert await store.call(ADD, "k", [2], replicated=True) == 0
            assert primary.peers[0].ask("SCARD", "k") == 2


async def test_a_primary_that_is_demoted_while_a_write_waits_is_replaced_by_its_successor(tmp_path: Path) -> None:
    with replicated(tmp_path) as primary:
        other = primary.peers[0]
        async with await Store.open(primary.url, timeout_seconds=WAIT_SECONDS) as store:
            await store.call(ADD, "k", [1], replicated=True)
            other.freeze()
            calling = asyncio.create_task(store.call(ADD, "k", [2], replicated=True))
            await asyncio.to_thread(
                wait_until, lambda: primary.info("clients")["blocked_clients"] == "1", "the call waits for a replica"
            )
            primary.ask("REPLICAOF", "127.0.0.1", other.port)
            primary.ask("CONFIG", "RESETSTAT")
            await asyncio.sleep(1.0)
            # A replica answers WAIT with an error: it is not asked again and again.
            assert "cmdstat_wait" not in primary.info("commandstats")
            assert not calling.done()
            primary.ask("REPLICAOF", "NO", "ONE")
            other.thaw()
            assert await calling == 0


async def test_the_new_primary_is_found_through_sentinels(tmp_path: Path) -> None:
    with sentinel_trio(tmp_path) as trio:
        with pytest.raises(StoreRefused, match="knows the service"):
            await Store.open(trio.url.replace("/crawl", "/nosuch"), timeout_seconds=2)
        one_is_down = trio.url.replace("://", f"://127.0.0.1:{free_port()},")
        async with await Store.open(one_is_down, timeout_seconds=30) as store:
            assert store.kind == "sentinel"
            assert store.replicas == 2
            confirmed = 0
            old = store.run_id("k")
            stop = asyncio.Event()

            async def write() -> None:
                nonlocal confirmed
                while not stop.is_set():
                    await store.call(ADD, "k", [confirmed], replicated=True)
                    confirmed += 1
                    await asyncio.sleep(0.001)

            writing = asyncio.create_task(write())
            await asyncio.sleep(0.3)
            trio.primary.kill()
            await store.call(ADD, "k", ["after"], replicated=True)
            stop.set()
            await writing
            assert store.run_id("k") != old
            assert await store.command("SCARD", "k") == confirmed + 1


async def test_a_primary_that_does_not_know_its_successor_is_abandoned(tmp_path: Path) -> None:
    with sentinel_trio(tmp_path) as trio:
        old, (successor, replica) = trio.primary, trio.primary.peers
        async with await Store.open(trio.url, timeout_seconds=WAIT_SECONDS) as store:
            await store.call(ADD, "k", [1], replicated=True)
            # What a partition between the old primary and all others leads to.
            for sentinel in trio.sentinels:
                sentinel.ask("SENTINEL", "REMOVE", "crawl")
            successor.ask("REPLICAOF", "NO", "ONE")
            replica.ask("REPLICAOF", "127.0.0.1", successor.port)
            # One sentinel is on the side of the old primary.
            for sentinel, named in zip(trio.sentinels, (old, successor, successor), strict=True):
                sentinel.ask("SENTINEL", "MONITOR", "crawl", "127.0.0.1", named.port, 3)
            assert await store.call(ADD, "k", [2], replicated=True) == 1
            assert old.info("replication")["role"] == "master"
            assert successor.ask("SCARD", "k") == 2


async def test_a_demoted_primary_is_abandoned(tmp_path: Path) -> None:
    with replicated(tmp_path) as primary:
        other = primary.peers[0]
        async with await Store.open(primary.url, timeout_seconds=10) as store:
            await store.call(ADD, "k", [1])
            other.ask("REPLICAOF", "NO", "ONE")
            primary.ask("REPLICAOF", "127.0.0.1", other.port)
            calling = asyncio.create_task(store.call(ADD, "k", [1]))
            await asyncio.sleep(0.2)
            assert not calling.done()
            primary.ask("REPLICAOF", "NO", "ONE")
            other.ask("REPLICAOF", "127.0.0.1", primary.port)
            await asyncio.to_thread(
                wait_until, lambda: primary.info("replication")["connected_slaves"] == "1", "the replica is back"
            )
            assert await calling == 0
