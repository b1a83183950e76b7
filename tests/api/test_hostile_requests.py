"""Requests that are meant to break the API: each gets a status below 500, and no more than its token allows."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.api.auth import create_token
from shoal.client import Client
from shoal.errors import CrawlEnded
from tests.api.process import ApiProcess, serve_api
from tests.servers import wait_until
from tests.system.shell import Shell

TOKENS = {role: create_token(role) for role in ("admin", "read", "submit", "admin:shop")}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    folder = tmp_path_factory.mktemp("hostile")
    settings = f'[api]\nrate = 10000\n[outputs]\nmain = "{folder / "pages.db"}"\n[tokens]\n'
    settings += "".join(f'{role.replace(":", "-")} = "{line}"\n' for role, (_, line) in TOKENS.items())
    with serve_api(folder / "served", settings=settings, token=TOKENS["admin"][0]) as api:
        yield api


def request(**fields: Any) -> dict[str, Any]:
    return {"seeds": ["http://example.org/"], "outputs": ["main"], "spider": "nobody", **fields}


@pytest.mark.parametrize(
    "header", ["Host: [", "Host: [::1", "Origin: http://[", "Origin: http://[::x]", "Host: h\r\nOrigin: ["]
)
def test_a_broken_host_or_origin_is_a_bad_request(api: ApiProcess, header: str) -> None:
    with socket.create_connection((api.host, api.port), 30) as line:
        more = "" if header.startswith("Host") else f"Host: {api.host}\r\n"
        line.sendall(f"GET /healthz HTTP/1.1\r\n{more}{header}\r\nConnection: close\r\n\r\n".encode())
        assert line.recv(100).split(b" ")[1] in (b"400", b"403")


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"user_agent": "é/1"}, "Invalid user_agent"),
        ({"user_agent": " "}, "Invalid user_agent"),
        ({"files": "x" * 1500}, "File name too long"),
        ({"allow": ["a"] * 1001}, "length <= 1000"),
        ({"allow": ["a" * 500] * 150, "deny": ["b" * 500] * 150}, "100,000 characters"),
        # Short texts, large programs: all of them together took minutes.
        ({"allow": [rf"{number}\pL{{100}}" for number in range(1000)]}, r"the limit is reached at '1\\pL{100}'"),
    ],
)
def test_an_invalid_field_is_named(api: ApiProcess, fields: dict[str, Any], detail: str) -> None:
    response = api.ask("POST", "/v1/crawls", request(**fields))
    assert response.status == 422
    assert detail in response.json["detail"]


def test_a_trailing_slash_is_another_path_and_not_a_redirect(api: ApiProcess) -> None:
    for path in ("/v1/crawls/", "/healthz/", "/v1/hosts/a/"):
        response = api.ask("GET", path, Authorization="", Host="evil.example")
        assert response.status == 404
        assert "location" not in response.headers


def test_allow_names_every_method_of_the_path(api: ApiProcess) -> None:
    for path, methods in (
        ("/v1/crawls", {"GET", "HEAD", "POST"}), ("/v1/crawls/x", {"GET", "HEAD", "PATCH", "DELETE"}),
        ("/v1/hosts/x", {"GET", "HEAD", "PATCH"}), ("/feed", {"POST"}),
    ):  # fmt: skip
        response = api.ask("PUT", path)
        assert response.status == 405
        assert set(response.headers["allow"].split(", ")) == methods


def test_one_token_cannot_take_all_event_streams(api: ApiProcess) -> None:
    crawl = api.ask("POST", "/v1/crawls", request(name="watched")).json["id"]

    def watch(role: str) -> int:
        connection = http.client.HTTPConnection(api.host, api.port, timeout=30)
        stack.callback(connection.close)
        headers = {"Authorization": f"Bearer {TOKENS[role][0]}"}
        connection.request("GET", f"/v1/crawls/{crawl}/events", headers=headers)
        response = connection.getresponse()
        if response.status == 200:
            response.readline()
        return response.status

    with contextlib.ExitStack() as stack:
        statuses = [watch("read") for _ in range(52)]
        assert statuses == [200] * 50 + [429] * 2
        assert watch("submit") == 200
    wait_until(lambda: "shoal_api_streams 0.0" in api.ask("GET", "/metrics").raw.decode(), "all are gone", 60)
    api.ask("POST", f"/v1/crawls/{crawl}/stop")


def test_an_administrator_of_an_application_writes_to_named_outputs_only(api: ApiProcess, tmp_path: Path) -> None:
    for fields in ({"outputs": [str(tmp_path / "x.db")]}, {"files": str(tmp_path)}):
        response = api.ask("POST", "/v1/crawls", request(**fields), Authorization=f"Bearer {TOKENS['admin:shop'][0]}")
        assert response.status == 403
        assert "not bound to an application" in response.json["detail"]


def test_only_a_paused_crawl_is_resumed(api: ApiProcess) -> None:
    with Client(api.url, token=TOKENS["admin"][0]) as client:
        crawl = client.submit(**request(name="over"))["id"]
        client.pause(crawl)
        assert client.resume(crawl)["state"] == "running"
        client.stop(crawl)
        with pytest.raises(CrawlEnded, match="only a paused crawl can be resumed"):
            client.resume(crawl)


def test_the_command_does_not_resume_a_finished_crawl(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    result = shell.run("crawl", "http://127.0.0.1:1/", "--out", "pages.db", "--name", "done")
    assert result.code in (0, 1, 2)
    result = shell.run("resume", "done")
    assert result.code == 1
    assert "only a paused crawl can be resumed" in result.err
