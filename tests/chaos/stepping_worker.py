"""The real worker, which kills or freezes itself at a chosen step: STEP=name TIME=n SIGNAL=number.

    leased        a lease came back, nothing of it was done
    fetched       a page has come, nothing was made of it
    added         its links are in the store
    written       its record is in the outputs
    acknowledged  the first of the shards has counted it, the others may not have
    settled       the outputs know that it is acknowledged

The step is taken the n-th time it is reached. Only what a step begins or ends with is wrapped: the worker's own code
runs as it is.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from shoal.fetch import Fetcher
from shoal.frontier import Frontier
from shoal.sinks.files.jsonl import JsonLinesSink
from shoal.sinks.sql.sqlite import SqliteSink
from shoal.worker.process import main

Call = Callable[..., Awaitable[Any]]
left = int(os.environ.get("TIME", "1"))


def strike() -> None:
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))


def after(call: Call, counts: Callable[..., object]) -> Call:
    @functools.wraps(call)
    async def wrapped(*args: Any, **named: Any) -> Any:
        outcome = await call(*args, **named)
        if counts(outcome, *args):
            strike()
        return outcome

    return wrapped


def is_page(request: Any) -> bool:
    return not request.url.endswith("/robots.txt")


def wrap(step: str) -> None:
    def put(owner: type, name: str, counts: Callable[..., object] = lambda *_: True) -> None:
        setattr(owner, name, after(getattr(owner, name), counts))

    match step:
        case "leased":
            put(Frontier, "lease", lambda leases, *_: leases)
        case "fetched":
            put(Fetcher, "fetch", lambda page, fetcher, request: is_page(request))
        case "added":
            put(Frontier, "add")
        case "written":
            for sink in (SqliteSink, JsonLinesSink):
                put(sink, "write")
        case "acknowledged":
            put(Frontier, "commit")
        case "settled":
            for sink in (SqliteSink, JsonLinesSink):
                put(sink, "commit")
        case _:
            sys.exit(f"there is no step {step!r}")


if __name__ == "__main__":
    wrap(os.environ["STEP"])
    code = main()
    sys.stderr.flush()
    os._exit(code)
