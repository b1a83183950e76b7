"""Listeners: messages wake them, silence times out, and a reconnect counts as a wake-up."""

from __future__ import annotations

import asyncio

from shoal.store import Script, Store
from tests.proxy import proxy
from tests.servers import Cluster, Server

SHOUT = Script("shout", "return redis.call('PUBLISH', ARGV[1], ARGV[2])")


async def test_a_published_message_wakes_the_listener(valkey: Server) -> None:
    async with await Store.open(valkey.url) as store, store.listener("wake") as listener:
        assert await listener.wait(2) == [b""]  # connecting is a wake-up: something may have been missed
        waiting = asyncio.create_task(listener.wait(5))
        await store.call(SHOUT, "k", ["wake", "one"])
        assert await waiting == [b"one"]
        for text in ("two", "three", "other"):
            await store.call(SHOUT, "k", ["wake" if text != "other" else "elsewhere", text])
        await asyncio.sleep(0.05)
        assert await listener.wait(1) == [b"two", b"three"]
        assert await listener.wait(0.05) == []


async def test_a_listener_survives_lost_connections_and_a_restart(own: Server) -> None:
    async with (
        proxy(own.port) as between,
        await Store.open(f"redis://127.0.0.1:{between.port}") as store,
        store.listener("wake") as listener,
    ):
        assert await listener.wait(2) == [b""]
        waiting = asyncio.create_task(listener.wait(5))
        await asyncio.sleep(0.05)
        between.cut()
        assert await waiting == [b""]
        own.restart()
        assert await listener.wait(5) == [b""]
        await store.call(SHOUT, "k", ["wake", "again"])
        assert await listener.wait(2) == [b"again"]


async def test_a_listener_whose_connection_died_silently_notices(own: Server) -> None:
    async with (
        proxy(own.port) as between,
        await Store.open(f"redis://127.0.0.1:{between.port}") as store,
        store.listener("wake") as listener,
    ):
        assert await listener.wait(2) == [b""]
        between.silent = True
        assert await listener.wait(0.1) == []  # sends a ping
        assert await listener.wait(0.1) == []  # gives up on it
        between.silent = False
        assert await listener.wait(2) == [b""]


async def test_waiting_only_times_out_while_the_store_is_unavailable(own: Server) -> None:
    async with await Store.open(own.url) as store, store.listener("wake") as listener:
        assert await listener.wait(2) == [b""]
        own.kill()
        assert await listener.wait(0.3) == []
        own.start()
        assert await listener.wait(3) == [b""]


async def test_a_message_published_on_any_cluster_node_is_received(three_nodes: Cluster) -> None:
    async with await Store.open(three_nodes.url) as store, store.listener("wake") as listener:
        assert await listener.wait(2) == [b""]
        for n in range(6):
            await store.call(SHOUT, f"{{{n}}}", ["wake", n])
        messages: list[bytes] = []
        while len(messages) < 6:
            messages += await listener.wait(2) or [b"nothing"]
        assert sorted(messages) == [b"%d" % n for n in range(6)]
