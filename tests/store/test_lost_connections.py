"""Connections that break, freeze or stay half open: no call is lost, and a failing store is not flooded."""

from __future__ import annotations

import asyncio
import time

import pytest

from shoal.errors import StoreUnavailable
from shoal.store import Script, Store
from shoal.store.node import pause_seconds
from tests.proxy import proxy
from tests.servers import WAIT_SECONDS, Server

pytestmark = [pytest.mark.chaos, pytest.mark.full]
ONCE = Script("once", "return redis.call('SADD', KEYS[1], ARGV[1])")


async def _work(store: Store, key: str, count: int) -> None:
    for number in range(count):
        await store.call(ONCE, key, [number])
        await asyncio.sleep(0.002)


@pytest.mark.parametrize("how", ["cut", "reset"])
async def test_calls_survive_broken_connections(how: str, own: Server) -> None:
    async with proxy(own.port) as between, await Store.open(f"redis://127.0.0.1:{between.port}") as store:
        work = [asyncio.create_task(_work(store, f"set{n}", 100)) for n in range(10)]
        while not all(task.done() for task in work):
            await asyncio.sleep(0.3)
            getattr(between, how)()
        await asyncio.gather(*work)
        assert [own.ask("SCARD", f"set{n}") for n in range(10)] == [100] * 10
        assert between.most_in_a_second() < 5


@pytest.mark.smoke
async def test_a_call_whose_reply_was_lost_is_repeated(own: Server) -> None:
    async with proxy(own.port) as between, await Store.open(f"redis://127.0.0.1:{between.port}") as store:
        between.swallow_replies = True
        waiting = asyncio.create_task(store.call(ONCE, "lost", [1]))
        await asyncio.sleep(0.1)
        assert own.ask("SCARD", "lost") == 1
        between.swallow_replies = False
        between.cut()
        assert await waiting == 0  # it had run; the second run changed nothing


@pytest.mark.parametrize("trouble", ["refuse", "down"])
async def test_many_callers_open_fewer_than_five_connections_per_second(trouble: str, own: Server) -> None:
    async with proxy(own.port) as between, await Store.open(f"redis://127.0.0.1:{between.port}") as store:
        async with store.listener("c") as listener:
            await listener.wait(1)
            if trouble == "refuse":
                between.refuse = True
            else:
                own.kill()
            between.cut()
            started = time.monotonic()
            calls = [asyncio.create_task(store.call(ONCE, "many", [n])) for n in range(200)]
            hearing = asyncio.create_task(listener.wait(10))
            await asyncio.sleep(3)
            between.refuse = False
            if trouble == "down":
                await asyncio.to_thread(own.start)
            await asyncio.gather(*calls)
            assert await hearing == [b""]
        assert own.ask("SCARD", "many") == 200
        assert between.most_in_a_second() < 5
        assert len(between.accepted) < 5 * (time.monotonic() - started) + 3


@pytest.mark.smoke
async def test_the_first_retry_comes_almost_at_once(own: Server) -> None:
    async with proxy(own.port) as between, await Store.open(f"redis://127.0.0.1:{between.port}") as store:
        await store.call(ONCE, "k", [1])
        before = len(between.accepted)
        between.cut()
        await store.call(ONCE, "k", [2])
        assert len(between.accepted) == before + 1
    # No clock here: a busy machine may take its time for the call.
    assert max(pause_seconds(failures) for failures in (0, 1) for _ in range(1000)) < 0.2


@pytest.mark.smoke
def test_no_retry_waits_for_more_than_a_second() -> None:
    assert max(pause_seconds(failures) for failures in range(1000)) <= 1.0


async def test_a_call_waits_for_a_frozen_store(own: Server) -> None:
    async with proxy(own.port) as between, await Store.open(f"redis://127.0.0.1:{between.port}") as store:
        await store.call(ONCE, "k", [1])
        own.freeze()
        calls = [asyncio.create_task(store.call(ONCE, "k", [n])) for n in range(50)]
        await asyncio.sleep(6)  # longer than a reply may take
        own.thaw()
        await asyncio.gather(*calls)
        assert own.ask("SCARD", "k") == 50
        assert between.most_in_a_second() < 5


@pytest.mark.smoke
async def test_the_timeout_of_the_store_is_an_error_that_names_store_time_and_reason(own: Server) -> None:
    async with await Store.open(own.url, timeout_seconds=0.5) as store:
        own.kill()
        with pytest.raises(StoreUnavailable, match=rf"127\.0\.0\.1:{own.port} did not respond for 0\.5 s .*refused"):
            await store.call(ONCE, "k", [1])
        own.start()
        assert await store.call(ONCE, "k", [2]) == 1


async def test_a_half_open_connection_ends_in_time(own: Server) -> None:
    async with proxy(own.port) as between:
        store = await Store.open(f"redis://127.0.0.1:{between.port}", timeout_seconds=1)
        between.silent = True
        with pytest.raises(StoreUnavailable):
            # A connection without a peer stays open for many minutes.
            async with asyncio.timeout(WAIT_SECONDS):
                await store.call(ONCE, "k", [1])
        await store.close()


async def test_opening_waits_for_a_store_that_starts_later_and_reports_it(own: Server) -> None:
    own.kill()
    warnings: list[str] = []
    opening = asyncio.create_task(Store.open(own.url, on_warning=warnings.append))
    await asyncio.sleep(1.8)
    await asyncio.to_thread(own.start)
    store = await opening
    assert len(warnings) == 1
    assert "is not ready" in warnings[0]
    await store.close()


async def test_a_server_that_needs_longer_for_each_reply_is_given_more_time(
    own: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of clients at once can make each of them wait. None would ever be connected if all gave up too soon."""
    monkeypatch.setattr("shoal.store.connection._REPLY_SECONDS", 0.5)
    async with proxy(own.port) as between, await Store.open(f"redis://127.0.0.1:{between.port}") as store:
        between.delay_seconds = 0.4  # in each direction
        assert await store.call(ONCE, "busy", ["a"]) in (0, 1)
        attempts = len(between.accepted)
        assert [await store.call(ONCE, "busy", [value]) for value in "bc"] == [1, 1]
        assert len(between.accepted) == attempts, "the connection was given up again"
