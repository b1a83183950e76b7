"""A worker without a web: leases numbers from its parent process, writes their pages, acknowledges, commits.

With a third word, the name of a spider, it writes the items of pages too.

On stdout one JSON list a line: ["lease"] is answered by a list of numbers (none: the end), ["acknowledge", receipt] by
the refused keys.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from shoal.sinks import open_sink
from shoal.sinks.contract import Stored
from tests.sinks.outputs import items_of, page, receipt_of


def ask(*question: Any) -> Any:
    print(json.dumps(question), flush=True)
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit(0)


async def main(uri: str, worker: str, spider: str = "") -> None:
    sink = open_sink(uri, worker=worker, spider=bool(spider))
    await sink.open()
    batch = 0
    while numbers := ask("lease"):
        batch += 1
        records: list[Stored] = [page(number, worker=worker, spider=spider) for number in numbers]
        if spider:
            records += [item for number in numbers for item in items_of(number)]
        receipt = receipt_of(f"{worker} {batch}", records)
        await sink.write(records, receipt)
        refused = ask("acknowledge", receipt.decode())
        await sink.commit([(crawl, url) for crawl, url in refused])
    await sink.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
