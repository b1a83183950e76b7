"""The store loses its last seconds under a real crawl: it restarts from a snapshot older than what it confirmed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.crawl import LONG, open_crawl
from tests.servers import server

pytestmark = [pytest.mark.chaos, pytest.mark.full]


@pytest.mark.smoke
async def test_a_store_restored_from_an_old_snapshot_loses_no_page(tmp_path: Path) -> None:
    pages, turns = (6_000, 5) if LONG else (900, 2)
    with server(tmp_path / "server", options={"appendonly": "no"}) as store:
        async with open_crawl(
            tmp_path, pages=pages, hosts=20, url=store.url, outputs=("pages.db",), lease_seconds=2.0
        ) as crawl:
            for _ in range(2):
                crawl.start()
            for turn in range(1, turns + 1):
                await crawl.requested(pages // (turns + 2) * turn)
                store.ask("SAVE")
                # The links of these pages are confirmed, remembered by the workers, and then forgotten by the store.
                await crawl.requested(crawl.request_count() + 100)
                store.kill()
                store.start()
            await crawl.finish(180)
            await crawl.judge()
