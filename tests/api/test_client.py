"""Programs and people as clients: the Python client, with and without asyncio, and commands on an API or on a store."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from shoal.api.auth import create_token
from shoal.client import AsyncClient, Client
from shoal.errors import InvalidInput, ShoalError, StoreUnavailable, UnknownCrawl
from tests.api.process import ApiProcess, serve_api
from tests.servers import free_port, wait_until
from tests.site.responses import page
from tests.system.crawls import Crawls, open_crawls
from tests.system.shell import Shell

TOKEN, LINE = create_token("admin")


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    folder = tmp_path_factory.mktemp("client")
    with open_crawls(folder, hosts=10, settings={"outputs": {"main": str(folder / "main.db")}}) as crawls:
        yield crawls


@pytest.fixture(scope="module")
def api(crawls: Crawls) -> Iterator[ApiProcess]:
    settings = f'[outputs]\nmain = "{crawls.folder / "main.db"}"\n[tokens]\nme = "{LINE}"\n'
    with serve_api(
        crawls.folder / "served", "--folder", crawls.folder / "store", settings=settings, token=TOKEN
    ) as api:
        yield api


def test_every_method_works_with_asyncio(crawls: Crawls, api: ApiProcess) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/", page("/gone"))

    async def use() -> None:
        async with AsyncClient(api.url, token=TOKEN) as client:
            crawl = (await client.submit(seeds=[f"http://{host}/"], outputs=["main"], delay_seconds=0, name="async"))[
                "id"
            ]
            events = [name async for name, _ in client.events(crawl)]
            assert events[-1] == "end"
            assert (await client.wait(crawl))["state"] == "finished"
            assert [record["status"] async for record in client.records(crawl, fields=["status", "url"])].count(
                200
            ) == 1
            assert len([failure async for failure in client.failed(crawl)]) == 1
            explained = await client.explain(crawl, f"http://{host}/gone")
            assert (explained["verdict"], explained["reason"]) == ("failed", "status 404")
            # So that what is retried still waits when it is paused.
            assert (await client.change_host(host, delay_seconds=300))["delay_seconds"] == 300
            assert await client.forget(crawl, [f"http://{host}/never"]) == 0
            assert await client.revisit(crawl, [f"http://{host}/gone"]) == 1
            assert await client.retry(crawl) == 0
            assert (await client.pause(crawl))["state"] == "paused"
            assert (await client.add(crawl, [f"http://{host}/b"]))["new"] == 1
            assert (await client.resume(crawl))["state"] == "running"
            assert (await client.stop(crawl))["state"] == "stopped"
            assert crawl in [summary["id"] async for summary in client.crawls(state="stopped")]
            assert (await client.host(host))["name"] == host
            # Visits of a stopped crawl are removed from a host when a worker finds them.
            assert {row["name"] async for row in client.hosts()} <= {host, "example.org"}
            assert (await client.stats())["workers"] == len(await client.workers()) == 1
            await client.delete(crawl)
            with pytest.raises(UnknownCrawl):
                await client.crawl(crawl)

    crawls.do(use())


def test_a_client_reports_what_is_wrong(api: ApiProcess) -> None:
    with pytest.raises(StoreUnavailable, match="is unavailable"):
        Client(f"http://127.0.0.1:{free_port()}").stats()
    with pytest.raises(InvalidInput, match="must start with http"):
        Client("redis://127.0.0.1")
    with pytest.raises(ShoalError, match="Authorization: Bearer"):
        Client(api.url, token="wrong").stats()
    crawl = api.client.submit(seeds=["http://example.org/"], outputs=["main"], spider="nobody")["id"]
    with pytest.raises(TimeoutError, match="did not end"):
        api.client.wait(crawl, timeout_seconds=0.1)
    api.client.stop(crawl)


@pytest.mark.full
def test_commands_work_on_an_api(crawls: Crawls, api: ApiProcess, shell: Shell) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/", page("/gone"))
    shell.environ = {"SHOAL_STORE": api.url, "SHOAL_TOKEN": TOKEN}
    result = shell.run(
        "submit", f"http://{host}/", "--out", "main", "--delay", "0", "--name", "typed", "--header", "X-Key: hush",
        "--attribute", "order=7", "--priority", "3", "--wait",
    )  # fmt: skip
    assert (result.code, result.out, result.err) == (0, "typed\n", "")
    status = json.loads(shell.run("show", "typed", "--json").out)
    assert status["counts"]["stored"] == 1
    assert status["limits"]["priority"] == 3
    assert status["policy"]["attributes"] == {"order": "7"}
    assert status["policy"]["headers"] == {"X-Key": "***"}
    assert "finished" in shell.run("show", "typed").out
    assert "typed" in shell.run("crawls").out
    assert shell.run("failed", "typed").out == f"status 404\thttp://{host}/gone\n"
    result = shell.run("explain", "typed", f"http://{host}/gone")
    assert result.out.startswith("verdict     failed: It failed: status 404.")
    assert json.loads(shell.run("explain", "typed", "http://b.test/", "--json").out)["verdict"] == "excluded"
    assert shell.run("failed", "typed", "--reason", "status 500").out == ""
    assert "Queued 0 URLs again." in shell.run("failed", "typed", "--retry", "--url", f"{host}/other").err
    assert "Queued 1 URL again." in shell.run("failed", "typed", "--retry", "--url", f"{host}/gone").err
    assert "Queued 1 URL for a visit." in shell.run("revisit", "typed", f"http://{host}/").err
    assert "has forgotten 0 URLs" in shell.run("forget", "typed", f"http://{host}/never").err
    assert (result := shell.run("revisit", "typed", f"http://{host}/never")).code == 2
    assert "add it as a seed instead" in result.err
    assert "2.5" in shell.run("hosts", host, "--delay", "2.5").out
    assert (
        shell.run("submit", "http://example.org/", "--out", "main", "--name", "later", "--spider", "nobody").out
        == "later\n"
    )
    for verb, state in (("pause", "paused"), ("resume", "running"), ("stop", "stopped")):
        assert f"Crawl later is {state}." in shell.run(verb, "later").err
    result = shell.run("stop", "nothing")
    assert result.code == 1
    assert "There is no crawl 'nothing'" in result.err
    shell.environ["SHOAL_TOKEN"] = "shoal_wrong"
    result = shell.run("crawls")
    assert result.code == 1
    assert "shoal_wrong" not in result.err


@pytest.mark.full
def test_submitting_to_a_store_works_like_submitting_to_an_api(crawls: Crawls, shell: Shell) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/", page())
    crawls.site.at(host, "/two", page())
    store = ("--folder", crawls.folder / "store")
    (shell.folder / "seeds.txt").write_text(f"# two\nhttp://{host}/\nhttp://{host}/two\n")
    command = ("submit", "--seeds", "seeds.txt", "--out", "main", "--delay", "0", "--name", "stored", *store)
    result = shell.run(*command)
    assert (result.code, result.out) == (0, "stored\n")
    crawls.finish("stored", host)
    result = shell.run(*command)
    assert (result.code, result.out) == (0, "stored\n")
    assert "already exists" in result.err
    assert shell.run(*command, "--max-pages", "1").code == 1
    request = {"url": f"http://{host}/two", "appid": "app", "crawlid": "1"}
    result = shell.run("submit", "--request", "-", "--out", "main", "--wait", *store, stdin=json.dumps(request))
    assert (result.code, result.out) == (0, "app:1\n")
    result = shell.run("submit", "--request", "-", "--wait", *store, stdin=json.dumps(request))
    assert result.code == 2
    assert "No output: pass e.g." in result.err
    assert shell.run("submit", *store).code == 2
    assert shell.run("submit", "--seeds", "none.txt", *store).code == 2


@pytest.mark.full
def test_a_file_output_is_merged_where_the_file_is(crawls: Crawls, api: ApiProcess, shell: Shell) -> None:
    (host,) = crawls.site.take()
    tree = crawls.site.plant(12, [host])
    lines = crawls.folder / "lines.jsonl"
    client = api.client
    crawl = client.submit(seeds=[tree.url(0)], outputs=[str(lines)], delay_seconds=0)["id"]
    assert client.wait(crawl, timeout_seconds=60)["counts"]["stored"] == 12
    wait_until(lambda: lines.exists() and len(lines.read_bytes().splitlines()) == 12, "the lines are there")
    assert {record["url"] for record in client.records(crawl)} == tree.walk()
