"""Crawls as jobs, with real workers on a real site: the API agrees with the log of the site and with the output."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shoal.client import Client
from shoal.errors import CrawlEnded, CrawlExists, InvalidInput, ShoalError, UnknownCrawl
from shoal.model.crawl import State
from shoal.model.crawl_spec import CrawlSpec
from shoal.operations import start
from tests.api.process import ApiProcess, serve_api
from tests.servers import wait_until
from tests.site.responses import page
from tests.system.crawls import Crawls, open_crawls


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    folder = tmp_path_factory.mktemp("api")
    outputs = {"main": str(folder / "api.db")}
    with open_crawls(folder, hosts=40, workers=2, settings={"outputs": outputs}) as crawls:
        yield crawls


@pytest.fixture(scope="module")
def api(crawls: Crawls) -> Iterator[ApiProcess]:
    settings = f'[outputs]\nmain = "{crawls.folder / "api.db"}"\n'
    with serve_api(crawls.folder / "served", "--folder", crawls.folder / "store", settings=settings) as api:
        yield api


@pytest.fixture
def client(api: ApiProcess) -> Client:
    return api.client


def begin(client: Client, *seeds: str, **request: Any) -> str:
    options = {"outputs": ["main"], "delay_seconds": 0.02, **request}
    return str(client.submit(seeds=list(seeds), **options)["id"])


def ended(client: Client, crawl: str) -> dict[str, Any]:
    return client.wait(crawl, timeout_seconds=60)


def test_the_workers_run_a_submitted_crawl_and_its_end_is_reported(crawls: Crawls, client: Client) -> None:
    (host,) = crawls.site.take()
    tree = crawls.site.plant(60, [host])
    done = client.submit(seeds=[tree.url(0)], name="first", outputs=["main"], delay_seconds=0, attributes={"order": 7})
    assert done == {"id": "first", "created": True}
    status = ended(client, "first")
    assert status["state"] == "finished"
    assert status["counts"]["stored"] == status["counts"]["admitted"] == 60
    records = list(client.records("first"))
    assert {record["url"] for record in records} == tree.walk()
    assert len(records) == 60
    assert all(record["attributes"] == {"order": 7} for record in records)
    assert crawls.site.judge(host).crowded() == []


def test_records_are_paged_without_gaps_or_duplicates(crawls: Crawls, api: ApiProcess, client: Client) -> None:
    (host,) = crawls.site.take()
    tree = crawls.site.plant(25, [host])
    crawl = begin(client, tree.url(0), delay_seconds=0)
    ended(client, crawl)
    records, cursor, pages = [], "", 0
    while True:
        response = api.ask("GET", f"/v1/crawls/{crawl}/records?limit=10&fields=url,status&cursor={cursor}").json
        records += response["records"]
        pages += 1
        cursor = response["next"]
        if not cursor:
            break
    assert pages == 3
    assert sorted(record["url"] for record in records) == sorted(tree.walk())
    assert records[0].keys() == {"url", "status"}


def test_crawls_are_filtered_by_state_and_listed_in_pages(crawls: Crawls, api: ApiProcess, client: Client) -> None:
    (host,) = crawls.site.take()
    names = [begin(client, f"http://{host}/{n}", app="lister", delay_seconds=60) for n in range(5)]
    client.pause(names[0])
    assert [crawl["id"] for crawl in client.crawls(app="lister", state="paused")] == [names[0]]
    listed, cursor = [], ""
    while True:
        response = api.ask("GET", f"/v1/crawls?app=lister&limit=2&cursor={cursor}").json
        listed += [crawl["id"] for crawl in response["crawls"]]
        cursor = response["next"]
        if not cursor:
            break
    assert listed == names[::-1]
    for name in names:
        client.stop(name)
    assert [crawl["id"] for crawl in client.crawls(app="lister", state="running")] == []


@pytest.mark.parametrize("verb", ["pause", "stop"])
def test_pausing_and_stopping_reach_all_workers_quickly(crawls: Crawls, client: Client, verb: str) -> None:
    hosts = crawls.site.take(3)
    tree = crawls.site.plant(3000, hosts)
    crawl = begin(client, *(tree.url(n) for n in range(3)), scope="any", delay_seconds=0.02)
    wait_until(lambda: all(len(crawls.site.requests(host)) > 5 for host in hosts), "all hosts have requests")
    wait_until(lambda: client.crawl(crawl)["counts"]["waiting"] > 100, "there is more to do than workers hold")
    getattr(client, verb)(crawl)
    at = time.monotonic()
    wait_until(lambda: client.crawl(crawl)["counts"]["leased"] == 0, "nothing is open")
    requests = crawls.site.requests(*hosts)
    # Fewer than two seconds are time for, at this delay. Counted, and not timed: the machine may be busy.
    assert sum(request.began > at for request in requests) < 2.0 / 0.02 * len(hosts)
    if verb == "pause":
        client.resume(crawl)
        wait_until(lambda: len(crawls.site.requests(*hosts)) > len(requests) + 10, "it resumes")
        client.stop(crawl)
    status = client.crawl(crawl)
    assert status["state"] == "stopped"
    assert status["excluded"]["stopped"] > 0


def test_the_id_of_an_ended_crawl_is_remembered_and_accepts_nothing_more(crawls: Crawls, client: Client) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/", page())
    request = {"seeds": [f"http://{host}/"], "name": "once", "outputs": ["main"]}
    client.submit(**request)
    ended(client, "once")
    # The same message again, as a bridge may deliver it, is not an error and changes nothing.
    assert client.submit(**request) == {"id": "once", "created": False}
    with pytest.raises(CrawlExists, match="'once' exists and is finished"):
        client.submit(**request | {"max_pages": 3})
    with pytest.raises(CrawlEnded, match="once"):
        client.add("once", [f"http://{host}/late"])
    client.delete("once")
    with pytest.raises(UnknownCrawl):
        client.crawl("once")
    with pytest.raises(CrawlExists, match="'once' exists and is deleted"):
        client.submit(**request)
    assert crawls.site.judge(host).times(f"http://{host}/") == 1


def test_only_the_id_of_a_deleted_crawl_remains(crawls: Crawls, client: Client) -> None:
    (host,) = crawls.site.take()
    tree = crawls.site.plant(40, [host])
    crawl = begin(client, tree.url(0), tree.url(39) + "/gone", delay_seconds=0)
    ended(client, crawl)
    key = crawls.do(crawls.frontier.crawls.get(crawl)).key
    client.delete(crawl)

    async def left() -> list[bytes]:
        cursor, found_keys = b"0", []
        while True:
            ask = crawls.frontier.shards.store.command
            cursor, keys = await ask("SCAN", cursor, "MATCH", f"*{key}*", "COUNT", 1000)
            found_keys += keys
            if cursor == b"0":
                return found_keys

    assert crawls.do(left()) == []
    assert len(crawls.rows("api")) > 0, "results stay"
    # A request that is repeated starts nothing; `shoal crawl` uses the name again.
    with pytest.raises(CrawlExists):
        client.submit(seeds=[tree.url(0)], name=crawl, outputs=["main"])
    spec = CrawlSpec(outputs=("x.db",))
    started = crawls.do(start.begin(crawls.frontier, name=crawl, seeds=[tree.url(0)], spec=spec))
    assert started.crawl.state is State.RUNNING
    client.stop(crawl)


def test_failed_urls_can_be_listed_and_retried(crawls: Crawls, client: Client) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/", page("/gone", "/lost"))
    crawl = begin(client, f"http://{host}/", delay_seconds=0)
    ended(client, crawl)
    assert sorted(client.failed(crawl), key=lambda failure: failure["url"]) == [
        {"url": f"http://{host}/{name}", "reason": "status 404", "depth": 1, "attempt": 1} for name in ("gone", "lost")
    ]
    crawls.site.at(host, "/gone", page())
    crawls.site.at(host, "/lost", page())
    assert client.retry(crawl, urls=[f"http://{host}/elsewhere"]) == 0
    assert client.retry(crawl, urls=[f"http://{host}/gone"], reason="status 500") == 0
    refused: tuple[dict[str, object], ...] = ({"urls": []}, {"urls": ["http://["]}, {"url": "http://a.test/"})
    for wrong in refused:
        with pytest.raises(InvalidInput):
            client._request("POST", f"/v1/crawls/{crawl}/retry", wrong)
    assert client.retry(crawl, urls=[f"http://{host}/gone"]) == 1
    wait_until(
        lambda: client.crawl(crawl)["state"] == "finished" and client.crawl(crawl)["counts"]["stored"] == 2, "one"
    )
    assert [failure["url"] for failure in client.failed(crawl)] == [f"http://{host}/lost"]
    assert client.retry(crawl, reason="status 404") == 1
    wait_until(lambda: client.crawl(crawl)["state"] == "finished" and not list(client.failed(crawl)), "retried")
    assert client.crawl(crawl)["counts"]["stored"] == 3


def test_seeds_are_added_to_a_running_crawl(crawls: Crawls, client: Client) -> None:
    (host,) = crawls.site.take()
    for path in ("/", "/more"):
        crawls.site.at(host, path, page())
    crawl = begin(client, f"http://{host}/", delay_seconds=0)
    client.pause(crawl)
    added = client.add(crawl, [f"http://{host}/more", f"http://{host}/"])
    assert added == {"new": 1, "known": 1, "refused": 0}
    client.resume(crawl)
    assert ended(client, crawl)["counts"]["stored"] == 2


def test_a_crawl_expires_at_its_time(crawls: Crawls, client: Client) -> None:
    (host,) = crawls.site.take()
    tree = crawls.site.plant(500, [host])
    crawl = begin(client, tree.url(0), expires_at=time.time() + 1.5, delay_seconds=0.1)
    status = ended(client, crawl)
    assert status["state"] == "expired"
    assert status["excluded"]["expired"] > 0
    wait_until(lambda: client.crawl(crawl)["ended_at"] > 0, "its end is written down")


def test_secrets_are_accepted_and_never_returned(crawls: Crawls, api: ApiProcess, client: Client) -> None:
    (host,) = crawls.site.take()
    crawls.site.at(host, "/", page())
    crawl = begin(
        client, f"http://{host}/", headers={"X-Key": "hush-1"}, cookie="c=hush-2", auth="me:hush-3",
        notify=f"http://{host}/hush-5", spider="nobody", outputs=["main", "postgresql://u:hush-4@127.0.0.1:1/none"],
    )  # fmt: skip
    for path in (f"/v1/crawls/{crawl}", "/v1/crawls", "/metrics", "/v1/stats", f"/v1/crawls/{crawl}/failed"):
        assert b"hush" not in api.ask("GET", path).raw
    assert "hush" not in api.output()
    client.stop(crawl)


def test_the_end_of_a_crawl_is_sent_to_its_notification_url(crawls: Crawls, client: Client) -> None:
    notifications: list[dict[str, Any]] = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            notifications.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            # The first notification fails, so it is sent again.
            self.send_response(500 if len(notifications) == 1 else 204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        (host,) = crawls.site.take()
        crawls.site.at(host, "/", page())
        url = f"http://127.0.0.1:{server.server_address[1]}/told?key=1"
        crawl = begin(client, f"http://{host}/", notify=url, attributes={"order": 9}, app="shop")
        wait_until(lambda: len(notifications) == 2, "the notification arrived")
        assert notifications[0] == notifications[1]
        assert notifications[0]["id"] == crawl
        assert notifications[0]["state"] == "finished"
        assert notifications[0]["app"] == "shop"
        assert notifications[0]["attributes"] == {"order": 9}
        assert notifications[0]["counts"]["stored"] == 1
    finally:
        server.shutdown()
        server.server_close()


def test_the_event_stream_has_counts_until_the_end(crawls: Crawls, client: Client) -> None:
    (host,) = crawls.site.take()
    tree = crawls.site.plant(30, [host])
    crawl = begin(client, tree.url(0), delay_seconds=0.05)
    events = []
    for event in client.events(crawl):
        events.append(event)
        assert len(events) < 100
    assert events[-1][0] == "end"
    stored = [status["counts"]["stored"] for _, status in events]
    assert stored == sorted(stored)
    assert stored[-1] == 30
    assert len(set(stored)) > 1


def test_a_host_can_be_slowed_down_and_blocked_for_all_crawls(crawls: Crawls, client: Client) -> None:
    (host,) = crawls.site.take()
    tree = crawls.site.plant(1000, [host])
    assert client.change_host(host, delay_seconds=0.4)["delay_seconds"] == 0.4
    crawl = begin(client, tree.url(0), delay_seconds=0)
    wait_until(lambda: len(crawls.site.requests(host)) >= 4, "some pages")
    (status,) = [row for row in client.hosts() if row["name"] == host]
    assert status["crawls"].keys() <= {crawl}
    assert status["robots_known"]
    assert client.change_host(host, delay_seconds=None, blocked="asked us to")["blocked"] == "asked us to"
    done = ended(client, crawl)
    assert done["failed"]["asked us to"] > 0
    assert crawls.site.judge(host).hasty(0.4) == []


def test_workers_and_metrics_show_the_state_of_the_fleet(crawls: Crawls, api: ApiProcess, client: Client) -> None:
    assert {worker["name"] for worker in client.workers()} == {"w1", "w2"}
    assert all(worker["machine"] and worker["seen_seconds_ago"] < 30 for worker in client.workers())
    host, visited = crawls.site.take(2)
    ended(client, begin(client, crawls.site.at(visited, "/", page()), f"http://{visited}/missing"))
    crawl = begin(client, *(f"http://{host}/{n}" for n in range(7)), delay_seconds=60)
    client.pause(crawl)
    wait_until(lambda: client.crawl(crawl)["counts"]["leased"] == 0, "nothing is leased")
    left = client.crawl(crawl)["counts"]
    # Who looks for work finds none, and puts the host aside.
    assert crawls.do(crawls.frontier.lease(hosts=1)) == []
    (waits,) = [row for row in client.hosts() if row["name"] == host]
    assert waits["crawls"] == {crawl: left["waiting"]}, "hosts of a paused crawl are listed, too"
    # Before the metrics: pages of other crawls may still be stored.
    stored = client.stats()["counts"]["stored"]
    metrics = api.ask("GET", "/metrics").raw.decode()
    values = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in metrics.splitlines() if line[0] != "#"
    }
    assert values["shoal_queue_length"] == left["waiting"] + left["later"] >= 6
    assert values["shoal_workers"] == 2
    # Those of deleted crawls are in it, too.
    assert values["shoal_pages_total"] >= stored > 0
    assert values['shoal_crawls{state="paused"}'] >= 1
    assert values['shoal_failed_total{reason="status 404"}'] >= 1
    assert 0 <= values["shoal_lease_age_seconds"] < 60
    client.stop(crawl)


def test_an_invalid_request_is_refused_in_one_sentence(client: Client, api: ApiProcess) -> None:
    meaningless: tuple[dict[str, Any], ...] = (
        {"seeds": []},
        {"seeds": ["mailto:a@b"]},
        {"seeds": ["http://a/"], "max_pages": "many"},
        {"seeds": ["http://a/"], "allow": ["("]},
        {"seeds": ["http://a/"], "colour": 1},
        {"seeds": ["http://a/"], "name": "a b"},
        {"seeds": ["http://a/"], "outputs": ["gopher://x"]},
        {"seeds": ["http://a/"], "outputs": ["unknown"]},
        {"seeds": ["http://a/"], "outputs": ["main"], "notify": "ftp://a/"},
    )
    for request in meaningless:
        with pytest.raises(ShoalError) as refused:
            client.submit(**request)
        assert str(refused.value).endswith("."), request
    response = api.ask("POST", "/v1/crawls", {"seeds": []})
    assert response.status == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json["type"] == "urn:shoal:problem:InvalidInput"
    assert response.json["id"]
    with pytest.raises(InvalidInput):
        client.change_host("a b", delay_seconds=1)


def test_an_invalid_record_of_a_crawl_does_not_hide_other_crawls(crawls: Crawls, client: Client) -> None:
    async def spoil(name: str) -> None:
        prefix = crawls.frontier.shards.prefixes[crawls.frontier.shards.home(name)]
        key = f"{prefix}crawl:{name}"
        await crawls.frontier.shards.store.command("HSET", key, "spec", b"\x80\x04pickle", key=key)

    (host,) = crawls.site.take()
    first, second = (begin(client, f"http://{host}/", app="spoiled", delay_seconds=60) for _ in range(2))
    client.stop(first)
    client.stop(second)
    crawls.do(spoil(first))
    assert [crawl["id"] for crawl in client.crawls(app="spoiled")] == [second]
    assert client.stats()["crawls"]["stopped"] > 0
