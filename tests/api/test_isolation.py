"""Crawls do not see each other's records, and one request cannot cause many large responses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import CrawlExists, InvalidInput
from shoal.frontier import Frontier
from shoal.model.crawl_request import CrawlRequest
from shoal.model.record import Record
from shoal.operations.submit import submit, to_submission
from tests.api.process import ApiProcess, serve_api
from tests.servers import Server, server
from tests.sinks.test_reading import written


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("store")) as valkey:
        yield valkey


@pytest.fixture
def api(store: Server, tmp_path: Path) -> Iterator[ApiProcess]:
    settings = f'[outputs]\nmain = "{tmp_path / "pages.db"}"\n'
    with serve_api(tmp_path / "served", "--store", store.url, settings=settings) as api:
        yield api


def request(**fields: Any) -> dict[str, Any]:
    return {"seeds": ["http://example.org/"], "outputs": ["main"], "spider": "nobody", **fields}


def test_a_name_whose_records_were_written_by_another_store_is_refused(api: ApiProcess, tmp_path: Path) -> None:
    output = str(tmp_path / "pages.db")
    asyncio.run(written(output, Record(crawl="foreign", url="http://secret.example/", status=200)))
    response = api.ask("POST", "/v1/crawls", request(name="foreign"))
    assert response.status == 409
    assert "already has records of another crawl 'foreign'" in response.json["detail"]
    # Another name is free, and the same request again is the same crawl although it has records by then.
    assert api.ask("POST", "/v1/crawls", request(name="own")).status == 201
    asyncio.run(written(output, Record(crawl="own", url="http://example.org/", status=200)))
    assert api.ask("POST", "/v1/crawls", request(name="own")).json == {"id": "own", "created": False}


def test_attributes_are_bounded_and_records_are_streamed(api: ApiProcess, tmp_path: Path) -> None:
    response = api.ask("POST", "/v1/crawls", request(attributes={"x": "y" * 1_000_000}))
    assert response.status == 422
    assert "attributes have more than 16,384 bytes" in response.json["detail"]
    assert api.ask("POST", "/v1/crawls", request(name="wide", attributes={"x": "y" * 16_000})).status == 201
    rows = [Record(crawl="wide", url=f"http://example.org/{n:04}", status=200) for n in range(1200)]
    asyncio.run(written(str(tmp_path / "pages.db"), *rows))
    urls, cursor = [], ""
    while True:
        response = api.ask("GET", f"/v1/crawls/wide/records?limit=500&fields=url&cursor={cursor}")
        assert "content-length" not in response.headers, "it is sent while it is read"
        urls += [record["url"] for record in response.json["records"]]
        cursor = response.json["next"]
        if cursor is None:
            break
    assert urls == [row.url for row in rows]


async def test_a_repeated_request_changes_nothing_even_while_its_crawl_ends(
    store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await Frontier.open(store.url) as frontier:
        submission = to_submission(CrawlRequest(seeds=("http://example.org/",), name="ending", outputs=("main",)))
        assert (await submit(frontier, submission)).created
        before = await frontier.crawls.get("ending")
        await frontier.crawls.stop("ending")

        async def stale(crawl_id: str) -> Any:
            monkeypatch.undo()
            return before

        # It is stopped after the request has found it running.
        monkeypatch.setattr(frontier.crawls, "get", stale)
        assert not (await submit(frontier, submission)).created
        other = to_submission(CrawlRequest(seeds=("http://other.example/",), name="ending", outputs=("main",)))
        with pytest.raises(CrawlExists):
            await submit(frontier, other)


def test_attributes_that_are_too_long_are_refused_for_every_caller() -> None:
    with pytest.raises(InvalidInput, match="attributes have more than"):
        to_submission(CrawlRequest(seeds=("http://example.org/",), attributes={"x": "y" * 20_000}))
