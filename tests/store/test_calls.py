"""Calls on one server: replies, order, scripts that the server lost, and errors by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from shoal.errors import StoreCorrupt, StoreError, StoreFull, StoreUnavailable
from shoal.store import Script, Store
from tests.servers import WAIT_SECONDS, Server, redis_server, server, valkey_server

ECHO = Script("echo", "return {KEYS[1], ARGV[1], #ARGV}")
PUSH = Script("push", "return redis.call('RPUSH', KEYS[1], ARGV[1])")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("binary", [valkey_server, redis_server])
def test_a_call_returns_plain_bytes_and_numbers_on_any_server_and_loop(
    run: Callable[[Any], Any], binary: Callable[[], str], tmp_path: Path
) -> None:
    async def main(url: str) -> list[Any]:
        async with await Store.open(url) as store:
            assert store.kind == "standalone"
            assert store.durable
            assert store.replicas == 0
            return await store.call_many([(ECHO, "k", ["a", b"\xff", 1, 0.5]), (ECHO, "l", [b"\xff"])])

    with server(tmp_path, binary=binary(), unix=True) as valkey:
        assert run(main(valkey.url)) == [[b"k", b"a", 4], [b"l", b"\xff", 1]]


async def test_many_callers_share_one_connection_and_get_their_own_replies(valkey: Server) -> None:
    async with await Store.open(valkey.url) as store:
        before = int(valkey.info("stats")["total_connections_received"])
        replies = await asyncio.gather(*(store.call(ECHO, f"k{n}", [n]) for n in range(500)))
        assert replies == [[b"k%d" % n, b"%d" % n, 1] for n in range(500)]
        assert int(valkey.info("stats")["total_connections_received"]) == before + 1  # INFO's own


async def test_a_cancelled_caller_does_not_shift_the_replies_of_others(valkey: Server) -> None:
    slow = Script("slow", "local n = 0 for i = 1, 3000000 do n = n + i end return 'slow'")
    async with await Store.open(valkey.url) as store:
        first = asyncio.create_task(store.call(slow, "k", []))
        second = asyncio.create_task(store.call(ECHO, "k", ["mine"]))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == [b"k", b"mine", 1]


async def test_the_calls_of_a_batch_run_in_order_even_if_scripts_are_not_loaded(valkey: Server) -> None:
    valkey.ask("SCRIPT", "FLUSH")
    other = Script("other", "return redis.call('RPUSH', KEYS[1], ARGV[1] .. '!')")
    async with await Store.open(valkey.url) as store:
        calls = [(PUSH if n % 2 else other, "order", [n]) for n in range(6)]
        assert await store.call_many(calls) == [1, 2, 3, 4, 5, 6]
        assert valkey.ask("LRANGE", "order", 0, -1) == [b"0!", b"1", b"2!", b"3", b"4!", b"5"]


async def test_many_commands_are_one_round_and_reply_in_their_order(valkey: Server) -> None:
    async with await Store.open(valkey.url) as store:
        commands = [(f"k{number}", ("RPUSH", f"k{number}", *range(number))) for number in range(1, 50)]
        assert await store.command_many(commands) == list(range(1, 50))
        assert await store.command_many([]) == []
        with pytest.raises(StoreCorrupt):
            await store.command_many([("k1", ("GET", "k1")), ("k1", ("RPUSH", "k1", "x"))])
        assert await store.command("LLEN", "k1", key="k1") == 2


async def test_a_flushed_script_cache_is_reloaded_transparently(valkey: Server) -> None:
    async with await Store.open(valkey.url) as store:
        for _ in range(5):
            assert await store.call(ECHO, "k", ["x"]) == [b"k", b"x", 1]
            valkey.ask("SCRIPT", "FLUSH")
            assert await store.call_many([(ECHO, "k", [n]) for n in range(3)]) == [
                [b"k", b"%d" % n, 1] for n in range(3)
            ]


async def test_every_call_of_a_batch_is_tried_before_the_first_error_is_raised(valkey: Server) -> None:
    bad = Script("bad", "return redis.error_reply('NOTNOW come back')")
    async with await Store.open(valkey.url) as store:
        with pytest.raises(StoreError, match="NOTNOW come back"):
            await store.call_many([(PUSH, "tried", [1]), (bad, "tried", []), (PUSH, "tried", [2])])
        assert valkey.ask("LRANGE", "tried", 0, -1) == [b"1", b"2"]


async def test_a_key_of_another_type_is_reported_as_corrupt(valkey: Server) -> None:
    valkey.ask("SET", "astring", "x")
    async with await Store.open(valkey.url) as store:
        with pytest.raises(StoreCorrupt, match="script push"):
            await store.call(PUSH, "astring", [1])


async def test_an_error_in_a_script_has_the_message_of_the_server(valkey: Server) -> None:
    async with await Store.open(valkey.url) as store:
        with pytest.raises(StoreError, match="nosuch"):
            await store.call(Script("broken", "return nosuch()"), "k", [])


@pytest.mark.parametrize("binary", [valkey_server, redis_server])
async def test_a_full_store_raises_store_full_and_scripts_that_free_memory_still_run(
    binary: Callable[[], str], tmp_path: Path
) -> None:
    free_first = Script("free_first", "redis.call('DEL', KEYS[1] .. ':none') return redis.call('INCR', KEYS[1])")
    with server(tmp_path, binary=binary(), options={"maxmemory": "1mb"}) as valkey:
        async with await Store.open(valkey.url, timeout_seconds=2) as store:
            with pytest.raises(StoreFull, match="maxmemory"):
                await store.call_many([(PUSH, "big", [b"x" * 100_000])] * 50)
            assert await store.call(free_first, "k", []) == 1


async def test_a_call_waits_for_a_busy_server_and_then_names_it(own: Server) -> None:
    own.ask("CONFIG", "SET", "busy-reply-threshold", "50")
    async with await Store.open(own.url, timeout_seconds=20) as store:
        endless = Script("endless", "while true do end")
        stuck = asyncio.create_task(store.call(endless, "k", []))
        await asyncio.sleep(0.3)
        async with asyncio.timeout(WAIT_SECONDS):
            call = asyncio.create_task(store.command("PING"))
            impatient = await asyncio.to_thread(_open_briefly, own.url)
            assert isinstance(impatient, StoreUnavailable)
            assert "BUSY" in str(impatient)
            own.ask("SCRIPT", "KILL")
            assert await call == b"PONG"
        with pytest.raises(StoreError, match="killed"):
            await stuck


def _open_briefly(url: str) -> BaseException | None:
    async def main() -> None:
        async with await Store.open(url, timeout_seconds=0.3):
            pass

    try:
        asyncio.run(main())
    except StoreUnavailable as error:
        return error
    return None


async def test_a_call_to_a_closed_store_is_an_error(valkey: Server) -> None:
    store = await Store.open(valkey.url)
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.call(ECHO, "k", [1])
