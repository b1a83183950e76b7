"""A worker without a web that archives: leases numbers from its parent process, as writer.py does with pages."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import Any

from shoal.model.record import Capture
from shoal.model.response import Response
from shoal.sinks import open_sink


def capture_of(number: int, **more: Any) -> Capture:
    """Of a body that is the same for the same number, between nothing and 40 KB, half of it without pattern."""
    source = random.Random(number)
    size = source.choice((0, 10, 2000, 20_000))
    values: dict[str, Any] = {
        "status": 200,
        "headers": (("content-type", "text/html"), ("server", "site")),
        "body": source.randbytes(size) + b"<p>" * size,
        "address": "127.0.0.1",
        "http_version": "1.1",
        "started_at": 1_700_000_000.25 + number,
    } | more
    return Capture(crawl="crawl", page=Response(url=f"https://site.example/{number}", **values))


def ask(*question: Any) -> Any:
    print(json.dumps(question), flush=True)
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit(0)


async def main(uri: str, worker: str) -> None:
    sink = open_sink(uri, worker=worker)
    await sink.open()
    batch = 0
    while numbers := ask("lease"):
        batch += 1
        captures = [capture_of(number, started_at=time.time()) for number in numbers]
        receipt = json.dumps([f"{worker} {batch}", [capture.key for capture in captures]])
        await sink.write(captures, receipt.encode())
        refused = ask("acknowledge", receipt)
        await sink.commit([(crawl, url) for crawl, url in refused])
    await sink.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
