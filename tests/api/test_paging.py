"""Lists longer than a page: nothing is left out or listed twice while entries are added or removed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from shoal.api.pagination import make_cursor
from shoal.frontier import Frontier
from shoal.model import Limits, Visit
from shoal.model.record import Record
from tests.api.process import ApiProcess, serve_api
from tests.servers import Server, server
from tests.sinks.test_reading import written
from tests.system.shell import Shell

T = TypeVar("T")
HOSTS, PATHS = 30, 50


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("store")) as valkey:
        yield valkey


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, store: Server) -> Iterator[ApiProcess]:
    folder = tmp_path_factory.mktemp("paging")
    settings = f'[api]\nrate = 100000\n[outputs]\nmain = "{folder}/main.db"\n'
    with serve_api(folder, "--store", store.url, settings=settings) as api:
        yield api


def do(store: Server, work: Callable[[Frontier], Awaitable[T]], name: str = "tester") -> T:
    async def run() -> T:
        async with await Frontier.open(store.url, worker=name) as frontier:
            return await work(frontier)

    return asyncio.run(run())


def urls(crawl: str, hosts: range) -> list[str]:
    return [f"http://h{host}.{crawl}.example/{path}" for host in hosts for path in range(PATHS)]


async def fail(frontier: Frontier, crawl: str, hosts: range) -> None:
    """Fail the visits of the first host with status 500, and block the other hosts with all their visits."""
    await frontier.add(crawl, [Visit(url=url) for url in urls(crawl, hosts)])
    for host in hosts[1:]:
        await frontier.hosts.block(f"h{host}.{crawl}.example", "no route")
    while leases := await frontier.lease(hosts=100, visits=100):
        for lease in leases:
            await frontier.acknowledge(lease, [visit.failed("status 500") for visit in lease.visits])


def failing(store: Server, crawl: str, hosts: range = range(HOSTS)) -> None:
    async def make(frontier: Frontier) -> None:
        await frontier.crawls.create(crawl, Limits(delay_seconds=0), exist_ok=True)
        await fail(frontier, crawl, hosts)

    do(store, make)


def pages(api: ApiProcess, path: str, field: str, between: Callable[[int], None] = lambda page: None) -> list[Any]:
    """Everything of a list. `between` is called after each page but the last."""
    entries: list[Any] = []
    sign = "&" if "?" in path else "?"
    cursor = ""
    for page in range(300):
        response = api.ask("GET", f"{path}{sign}cursor={cursor}")
        assert response.status == 200, response.raw
        entries += response.json[field]
        cursor = response.json["next"]
        if cursor is None:
            return entries
        assert response.json[field] or page
        between(page)
    raise AssertionError("it has no end")


def test_each_failed_url_is_on_exactly_one_page_while_more_fail(api: ApiProcess, store: Server) -> None:
    failing(store, "grows")
    later = iter(range(HOSTS, HOSTS + 5))

    def between(page: int) -> None:
        if host := next(later, None):
            failing(store, "grows", range(host, host + 1))

    failures = pages(api, "/v1/crawls/grows/failed?limit=100", "failed", between)
    seen = Counter(failure["url"] for failure in failures)
    assert set(seen.values()) == {1}
    assert set(urls("grows", range(HOSTS))) <= seen.keys()
    assert {failure["reason"] for failure in failures} == {"no route", "status 500"}
    assert len(pages(api, "/v1/crawls/grows/failed?limit=1750", "failed")) == 1750, "a page of all is the last one"


@pytest.mark.parametrize("after", [0, 3])
def test_a_retry_while_paging_is_neither_an_error_nor_a_loop(api: ApiProcess, store: Server, after: int) -> None:
    crawl = f"retried{after}"
    failing(store, crawl)

    def between(page: int) -> None:
        async def again(frontier: Frontier) -> None:
            for host in range(HOSTS):
                await frontier.hosts.unblock(f"h{host}.{crawl}.example")
            assert await frontier.crawls.retry(crawl) == HOSTS * PATHS
            await fail(frontier, crawl, range(5))

        if page == after:
            do(store, again)

    failures = pages(api, f"/v1/crawls/{crawl}/failed?limit=100", "failed", between)
    seen = Counter(failure["url"] for failure in failures)
    assert set(urls(crawl, range(HOSTS))) >= seen.keys()
    # A URL that failed again may be listed again.
    assert max(seen.values()) <= 2


def test_failed_urls_of_branches_are_listed_after_those_of_the_crawl(api: ApiProcess, store: Server) -> None:
    async def make(frontier: Frontier) -> list[str]:
        await frontier.crawls.create("family", Limits(delay_seconds=0, spider="one"))
        names = ["family", *[await frontier.crawls.branch("family", spider) for spider in ("three", "two")]]
        for number, name in enumerate(names):
            await frontier.add(name, [Visit(url=f"http://{n}.family.example/{number}") for n in range(15)])
        for spider in ("one", "two", "three"):
            while leases := await frontier.lease(hosts=100, spiders=[spider]):
                for lease in leases:
                    await frontier.acknowledge(lease, [visit.failed("broken") for visit in lease.visits])
        return names

    assert do(store, make) == ["family", "family:three", "family:two"]
    urls = [failure["url"] for failure in pages(api, "/v1/crawls/family/failed?limit=4", "failed")]
    assert len(set(urls)) == len(urls) == 45
    assert [url[-1] for url in urls] == ["0"] * 15 + ["1"] * 15 + ["2"] * 15


def test_the_command_lists_all_failed_urls_of_an_api_and_of_a_store(
    api: ApiProcess, store: Server, shell: Shell
) -> None:
    failing(store, "listed")
    on_api = shell.run("failed", "listed", "--store", api.url)
    on_store = shell.run("failed", "listed", "--store", store.url)
    assert sorted(line.partition("\t")[2] for line in on_api.out.splitlines()) == sorted(urls("listed", range(HOSTS)))
    assert on_store.out == on_api.out
    for where in (api.url, store.url):
        assert len(shell.run("failed", "listed", "--limit", "1203", "--store", where).out.splitlines()) == 1203


def test_crawls_hosts_and_workers_are_listed_in_pages(api: ApiProcess, store: Server) -> None:
    names = [f"many-{n}" for n in range(25)]

    async def make(frontier: Frontier) -> None:
        for name in names:
            await frontier.crawls.create(name, spec={"app": "many" if name[-1] in "02468" else "others"})
            await frontier.add(name, [Visit(url=f"http://{name}.example/")])
        await frontier.workers.beat({})

    for worker in ("w1", "w2", "w3"):
        do(store, lambda frontier: frontier.workers.beat({}), worker)
    do(store, make, "w4")
    listed = pages(api, "/v1/crawls?limit=4&app=many", "crawls")
    assert [crawl["id"] for crawl in listed] == [name for name in names[::-1] if name[-1] in "02468"]
    hosts = [host["name"] for host in pages(api, "/v1/hosts?limit=3", "hosts")]
    assert {f"{name}.example" for name in names} <= set(hosts)
    assert len(set(hosts)) == len(hosts)
    assert [worker["name"] for worker in pages(api, "/v1/workers?limit=2", "workers")] == ["w1", "w2", "w3", "w4"]
    assert [worker["name"] for worker in api.client.workers()] == ["w1", "w2", "w3", "w4"]


def test_an_invalid_cursor_or_one_of_another_list_is_refused_in_one_sentence(
    api: ApiProcess, store: Server, tmp_path: Path
) -> None:
    for crawl in ("mine", "other"):
        failing(store, crawl, range(3))
    lists = ["crawls/mine/failed", "crawls/mine/records", "crawls", "hosts", "workers"]
    cursors = {path: api.ask("GET", f"/v1/{path}?limit=1").json["next"] for path in ("crawls/mine/failed", "crawls")}
    assert all(cursors.values())
    invalid = [cursors["crawls/mine/failed"][:-2], "x", "A" * 15_000, "%00", "%ff%fe", "9" * 400, "MQ", "é"]
    for path in lists:
        strange = [cursor for other, cursor in cursors.items() if other != path]
        for cursor in [*invalid, *strange, api.ask("GET", "/v1/crawls/other/failed?limit=1").json["next"]]:
            response = api.ask("GET", f"/v1/{path}?cursor={cursor.replace('é', '%C3%A9')}")
            assert response.status in (400, 422), (path, cursor)
            if len(cursor) < 12_000:
                assert response.headers["content-type"] == "application/problem+json"
                assert response.json["detail"].count(".") == 1
    filtered = api.ask("GET", "/v1/crawls?limit=1&app=").json["next"]
    assert api.ask("GET", f"/v1/crawls?app=shop&cursor={filtered}").status == 422


def test_a_forged_cursor_causes_no_internal_error(api: ApiProcess, store: Server) -> None:
    """A cursor is not a secret: a forged one gets a response or a refusal."""
    failing(store, "forged", range(3))
    strange: list[Any] = [
        [], ["forged"], ["forged", -1], ["forged", 2**53, 2**53, 2**53, "x"], ["forged", 0, 2**53, 1, ""],
        ["forged", 0, 0, 2**53, ""], ["", 0, 0, 1, "00"], ["zzz", 0, 0, 1, "00"], ["forged", 10**30], {}, None, "x", 1,
        [0, 1e308], [5, []], [0, [[[]]]], [-1, "h"], [2**80, "h"], [1e308, "x"],
    ]  # fmt: skip
    for path, of in (
        ("crawls/forged/failed", ("failed", "forged")), ("crawls/forged/records", ("records", "forged", "page")),
        ("crawls", ("crawls", "", "")), ("hosts", ("hosts",)), ("workers", ("workers",)),
    ):  # fmt: skip
        for value in strange:
            response = api.ask("GET", f"/v1/{path}?cursor={make_cursor(value, *of)}")
            assert response.status in (200, 422), (path, value, response.raw)


@pytest.mark.parametrize("name", ["pages.db", "pages.jsonl", "pages.csv.gz"])
def test_each_record_is_on_exactly_one_page_while_more_are_written(
    api: ApiProcess, store: Server, tmp_path: Path, name: str
) -> None:
    crawl = f"kept-{name}"
    output = str(tmp_path / name)
    # URLs of maximum length: the cursor contains one of them.
    there = [f"http://{n:03}.example/{'x' * 8000}" for n in range(20, 40)]
    # The first output cannot be read back, so that the second is.
    spec = {"outputs": [f"warc:{tmp_path / 'warc'}", output], "attributes": {"order": 1}}

    async def make(frontier: Frontier) -> None:
        await frontier.crawls.create(crawl, spec=spec)
        await written(output, *(Record(crawl=crawl, url=url, status=200) for url in there))

    do(store, make)

    def between(page: int) -> None:
        asyncio.run(written(output, *(Record(crawl=crawl, url=f"http://{n:03}.example/") for n in (page, 90 - page))))

    records = pages(api, f"/v1/crawls/{crawl}/records?limit=3&fields=url,number", "records", between)
    seen = Counter(record["url"] for record in records)
    assert set(there) <= seen.keys()
    assert set(seen.values()) == {1}
    assert records[0] == {"url": records[0]["url"], "attributes": {"order": 1}}, "a page has no number"
    if name != "pages.db":
        cursor = api.ask("GET", f"/v1/crawls/{crawl}/records?limit=1").json["next"]
        assert len(cursor) < 30, "it says how far and not of what"
        Path(output).write_bytes(b"")
        response = api.ask("GET", f"/v1/crawls/{crawl}/records?cursor={cursor}")
        assert (response.status, response.json["type"]) == (422, "urn:shoal:problem:InvalidInput")
        assert "omit the cursor to start again" in response.json["detail"]
