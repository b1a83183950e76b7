"""Faults around the API: the API is down, the store is down, no server runs. Crawls continue."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client import Client
from shoal.errors import StoreUnavailable
from shoal.frontier import Frontier
from shoal.model import Limits
from shoal.model.crawl_spec import CrawlSpec
from shoal.operations.maintenance import Maintainer
from shoal.settings import FrontierSettings, Settings
from tests.api.process import serve_api
from tests.servers import server, wait_until
from tests.site.responses import page
from tests.system.crawls import Crawls, open_crawls
from tests.system.shell import Shell


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    with open_crawls(tmp_path_factory.mktemp("faults"), hosts=12, workers=2) as crawls:
        yield crawls


@pytest.mark.full
def test_a_crawl_continues_while_the_api_is_killed_and_restarted(crawls: Crawls, tmp_path: Path) -> None:
    hosts = crawls.site.take(3)
    tree = crawls.site.plant(240, hosts)
    flags = ("--folder", crawls.folder / "store")
    output = crawls.folder / "killed.db"
    with serve_api(tmp_path / "one", *flags) as api:
        client = api.client
        crawl = client.submit(
            seeds=[tree.url(0)], name="killed", scope="any", delay_seconds=0.01, outputs=[str(output)]
        )["id"]  # fmt: skip
        wait_until(lambda: len(crawls.site.requests(*hosts)) > 20, "it runs")
        api.process.send_signal(signal.SIGKILL)
        api.process.wait(10)
        with pytest.raises(StoreUnavailable, match="is unavailable"):
            client.crawl(crawl)
    before = len(crawls.site.requests(*hosts))
    wait_until(lambda: len(crawls.site.requests(*hosts)) > before + 20, "the crawl continues")
    with serve_api(tmp_path / "two", *flags) as api:
        status = api.client.wait("killed", timeout_seconds=60)
    assert status["state"] == "finished"
    assert status["counts"]["stored"] == status["counts"]["admitted"] == 240
    assert crawls.rows("killed").keys() == tree.walk()
    judge = crawls.site.judge(*hosts)
    assert judge.crowded() == []
    assert judge.hasty(0.01) == []
    assert judge.repeated() == {}


def test_a_signal_stops_the_server_cleanly_even_with_open_event_streams(crawls: Crawls, tmp_path: Path) -> None:
    (host,) = crawls.site.take()
    with serve_api(tmp_path, "--folder", crawls.folder / "store") as api:
        crawl = api.client.submit(seeds=[f"http://{host}/"], outputs=["main"], spider="nobody")["id"]
        events: list[str] = []

        def watch() -> None:
            events.extend(name for name, _ in Client(api.url).events(crawl))
            events.append("end")

        watching = threading.Thread(target=watch)
        watching.start()
        wait_until(lambda: "shoal_api_streams 1.0" in api.ask("GET", "/metrics").raw.decode(), "a stream is open")
        assert api.end() == 0
        watching.join(10)
        # The stream ends in order. At the end of the grace period the response would be aborted, which is an error.
        assert events == ["counts", "end"]


@pytest.mark.full
def test_an_unavailable_store_is_reported_and_reconnected(tmp_path: Path) -> None:
    with server(tmp_path / "valkey") as store, serve_api(tmp_path / "served", "--store", store.url) as api:
        assert api.ask("GET", "/readyz").status == 200
        store.freeze()
        assert api.ask("GET", "/readyz").status == 503
        assert api.ask("GET", "/healthz").status == 200
        response = api.ask("GET", "/v1/crawls")
        assert response.status == 503
        assert response.headers["retry-after"]
        assert response.json["type"] == "urn:shoal:problem:StoreUnavailable"
        store.thaw()
        wait_until(lambda: api.ask("GET", "/readyz").status == 200, "it is back")
        assert api.ask("GET", "/v1/crawls").status == 200


def test_the_password_of_a_store_is_never_shown(tmp_path: Path) -> None:
    with server(tmp_path / "valkey", options={"requirepass": "hush"}) as store:
        with serve_api(tmp_path / "served", "--store", store.url) as api:
            assert api.ask("GET", "/v1/stats").status == 200
            assert "hush" not in api.output()
        result = Shell(tmp_path).run("serve", "--port", "0", "--store", store.url.replace("hush", "guess"))
        assert result.code == 1
        assert "guess" not in result.err


@pytest.mark.full
def test_one_of_many_maintainers_is_active_and_another_takes_over(crawls: Crawls) -> None:
    settings = Settings()

    first = Maintainer(crawls.frontier, settings)
    # The server of a test before this one may have held the lock a moment ago.
    wait_until(lambda: crawls.do(first._chosen()), "no other process holds the lock")
    assert crawls.do(first._chosen()), "it keeps the lock"
    other = _other(crawls)
    try:
        assert not crawls.do(Maintainer(other, settings)._chosen())
        wait_until(
            lambda: crawls.do(Maintainer(other, settings)._chosen()), "the lock of one that is gone runs out", 10
        )
    finally:
        crawls.do(other.close())


def test_an_ended_crawl_is_deleted_from_the_store_in_time_and_its_results_remain(crawls: Crawls) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/", page())
    done = crawls.run(f"http://{host}/")
    assert done.counts.stored == 1
    crawl = f"crawl{next(crawls.numbers) - 1}"

    async def tend(keep_days: float) -> str:
        maintainer = Maintainer(crawls.frontier, Settings(frontier=FrontierSettings(keep_days=keep_days)))
        await maintainer.check()
        await maintainer.check()
        return (await crawls.frontier.crawls.get(crawl)).state.value

    assert crawls.do(tend(1.0)) == "finished"
    assert crawls.do(tend(0.0)) == "finished"
    time.sleep(0.05)
    assert crawls.do(tend(1e-7)) == "deleted"
    assert len(crawls.rows(crawl)) == 1


def test_a_maintainer_does_not_end_scrapy_crawls_branches_or_crawls_without_seeds(crawls: Crawls) -> None:
    async def states() -> list[str]:
        make = crawls.frontier.crawls.create
        await make("of-scrapy", Limits(), {"scrapy": "x"})
        await make("branch", Limits(), CrawlSpec(parent="of-scrapy").stored())
        await make("seedless", Limits(), CrawlSpec().stored())
        await Maintainer(crawls.frontier, Settings()).check()
        return [(await crawls.frontier.crawls.get(name)).state.value for name in ("of-scrapy", "branch", "seedless")]

    assert crawls.do(states()) == ["running"] * 3


def _other(crawls: Crawls) -> Frontier:
    return crawls.do(Frontier.open(folder=str(crawls.folder / "store")))
