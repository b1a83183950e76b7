"""The client's CPU time of a script call with redis-py and with Shoal's store, on a Unix socket.

python -m bench.store_client [uvloop]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import redis.asyncio
import uvloop

from shoal.store import Script, Store

_COUNT = "return #ARGV"


async def _cpu_us(call: Callable[[], Awaitable[object]], times: int) -> float:
    await call()
    began = time.process_time()
    for _ in range(times):
        await call()
    return (time.process_time() - began) / times * 1e6


async def main() -> None:
    # The server of the store ends after its last client.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        async with await Store.open(folder=folder) as store:
            peer = redis.asyncio.Redis(unix_socket_path=str(Path(folder, "store", "socket")))
            peer_script, script = peer.register_script(_COUNT), Script("count", _COUNT)
            for size, times in ((3, 5000), (2000, 500)):
                arguments = ["x" * 20] * size

                async def call_peer(arguments: list[str] = arguments) -> object:
                    return await peer_script(keys=["k"], args=arguments)

                async def call_store(arguments: list[str] = arguments) -> object:
                    return await store.call(script, "k", arguments)

                peer_us, store_us = await _cpu_us(call_peer, times), await _cpu_us(call_store, times)
                print(
                    f"{size:5} arguments: redis-py {peer_us:6.0f} us, Shoal {store_us:6.0f} us, "
                    f"{peer_us / store_us:.1f} times"
                )
            await peer.aclose()


if __name__ == "__main__":
    (uvloop.run if sys.argv[1:] == ["uvloop"] else asyncio.run)(main())
