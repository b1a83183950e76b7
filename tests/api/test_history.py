"""The history over HTTP: written by the server, the same for a crawl and for the fleet."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal.frontier import Frontier
from shoal.frontier.history import Totals
from tests.api.process import serve_api
from tests.servers import wait_until

START = 1_800_000_000 // 3600 * 3600


async def write(folder: Path) -> None:
    async with await Frontier.open(folder=str(folder)) as frontier:
        for crawl in (None, await frontier.crawls.get("x")):
            for minute in range(3):
                totals = Totals(60 * minute, minute, 0, 1000 * minute, 7, 2)
                await frontier.history.write(crawl, START + 60 * minute, totals)


def test_rates_and_counts_are_in_the_api(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with serve_api(tmp_path / "served", "--folder", folder) as api:
        api.ask("POST", "/v1/crawls", {"seeds": ["http://example.org/"], "name": "x", "outputs": ["y"]})

        def written() -> bool:
            async def read() -> bool:
                async with await Frontier.open(folder=str(folder)) as frontier:
                    return await frontier.history.last(None) is not None

            return asyncio.run(read())

        # The server's maintainer writes a point at once, then every minute.
        wait_until(written, "the server has written a point")
        asyncio.run(write(folder))
        for path in ("/v1/history", "/v1/crawls/x/history?step=minute"):
            response = api.ask("GET", path)
            assert response.status == 200
            assert response.json["step"] == "minute"
            last = response.json["points"][-1]
            expected = {"at": START + 120, "seconds": 60, "stored": 60, "failed": 1, "bytes": 1000, "open": 7}
            assert expected.items() <= last.items()
        assert api.client.history("x")[-1]["stored"] == api.client.history()[-1]["stored"] == 60
        assert api.ask("GET", "/v1/history?step=hour").status == 200
        assert api.ask("GET", "/v1/history?step=year").status == 422
        assert api.ask("GET", "/v1/crawls/none/history").status == 404
