"""The function over HTTP: CloudEvents and plain JSON, through a real WSGI server."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from shoal.serverless import application
from tests.servers import Server
from tests.site.site import Site

pytestmark = pytest.mark.full
Post = Callable[..., tuple[int, dict[str, Any]]]


class Quiet(WSGIRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def post(store: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    for name, value in {
        "SHOAL_STORE": store.url, "SHOAL_OUTPUTS_DEFAULT": f"{store.url}/0/results",
        "SHOAL_FETCH_ALLOW_NETWORKS": "127.0.0.0/8", "SHOAL_WORKER_GRACE_SECONDS": "1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    with make_server("127.0.0.1", 0, application, handler_class=Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def send(body: bytes | Any, method: str = "POST", **headers: str) -> tuple[int, dict[str, Any]]:
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=120)
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, "/", raw, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            result = response.status, json.loads(response.read())
            connection.close()
            return result

        yield send
        server.shutdown()


def test_http_events_submit_crawls_and_work_on_them(site: Site, store: Server, post: Post) -> None:
    hosts = site.take(2)
    tree = site.plant(12, hosts)
    request = {"seeds": [tree.url(0)], "scope": "any", "delay_seconds": 0.05}
    event = {"specversion": "1.0", "id": "e1", "type": "shoal.crawl", "source": "/s", "data": request}
    status, first = post(event, Content_Type="application/cloudevents+json")
    assert (status, first["created"]) == (202, True)
    # The same event again, in binary mode.
    status, again = post(request, Content_Type="application/json", ce_id="e1", ce_type="shoal.crawl")
    assert (status, again) == (202, {"id": first["id"], "created": False})
    status, summary = post({"seconds": 30})
    assert (status, summary["pages"], summary["idle"]) == (200, 12, True)
    urls = [json.loads(record)["url"] for record in store.ask("LRANGE", "results", 0, -1)]
    assert sorted(urls) == sorted(tree.walk())
    assert site.judge(*hosts).impolite(0.05) == []


def test_bad_requests_are_refused_in_one_sentence(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    assert post(b"no JSON")[0] == 400
    assert post(b"[]")[1] == {"problem": "The request must be a JSON object."}
    assert post({"seconds": 2})[1]["problem"].startswith("2 s is too short")
    assert post({"seconds": "x"})[0] == 400
    assert post({"seeds": ["http://x.example/"], "ignore_robots": True})[0] == 400
    assert post({}, method="GET")[0] == 405
    monkeypatch.setenv("SHOAL_TOKEN", "secret")
    assert post({"seconds": 10})[0] == 401
    assert post({"seconds": 10}, Authorization="Bearer wrong")[0] == 401
    assert post({"seconds": 10}, Authorization="Bearer secret")[0] == 200
    monkeypatch.setenv("SHOAL_STORE", "redis://127.0.0.1:1")
    monkeypatch.setenv("SHOAL_STORE_TIMEOUT_SECONDS", "1")
    assert post({"seconds": 10}, Authorization="Bearer secret")[0] == 503
