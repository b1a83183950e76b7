"""Access to the API: every route without a token, with a wrong one and with an insufficient one; and rate limits."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.api.auth import Role, Tokens, create_token
from shoal.api.middleware import HEADERS, RateLimiter
from shoal.api.routes import ROUTES, Route
from shoal.client import Client
from shoal.errors import SettingsError, ShoalError, UnknownCrawl
from tests.api.process import ApiProcess, ApiResponse, serve_api
from tests.system.shell import Shell

ROLES = ("read", "submit", "admin", "read:shop", "submit:shop", "admin:shop")
TOKENS = {role: create_token(role) for role in ROLES}
SETTINGS = "[tokens]\n" + "".join(
    f'{role.replace(":", "-")} = "{line}"\n' for role, (_, line) in TOKENS.items()
)  # fmt: skip

GUARDED = [route for route in ROUTES if route.role is not None]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    with serve_api(tmp_path_factory.mktemp("access"), settings=SETTINGS) as api:
        yield api


def ask(api: ApiProcess, route: Route, token: str) -> ApiResponse:
    path = route.path.replace("{crawl}", "nobody").replace("{host}", "example.org")
    body = {"seeds": ["http://example.org/"]} if route.method in ("POST", "PATCH") else None
    return api.ask(route.method, path, body, Authorization=f"Bearer {token}" if token else "")


def test_only_routes_without_private_data_are_public() -> None:
    assert {route.path for route in ROUTES if route.role is None} == {
        "/", "/healthz", "/readyz", "/openapi.json", "/indexnow",
    }  # fmt: skip


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: route.name)
def test_a_route_refuses_a_missing_wrong_or_insufficient_token(api: ApiProcess, route: Route) -> None:
    for token in ("", "wrong", TOKENS["admin"][0][:-1], TOKENS["admin"][1].rpartition(":")[2]):
        response = ask(api, route, token)
        assert response.status == 401, token
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert response.json["status"] == 401
    assert route.role is not None
    for role in Role:
        response = ask(api, route, TOKENS[role.name.lower()][0])
        assert (response.status == 403) == (role < route.role), (role, response)
    response = ask(api, route, TOKENS["admin:shop"][0])
    assert (response.status == 403) == route.fleet_wide


def test_every_response_has_strict_headers(api: ApiProcess) -> None:
    for path in ("/healthz", "/v1/crawls", "/nowhere", "/v1/crawls/x", "/openapi.json"):
        response = api.ask("GET", path, Authorization=f"Bearer {TOKENS['read'][0]}")
        for name, value in HEADERS.items():
            assert response.headers[name.lower()] == value
        assert "server" not in response.headers
        assert "html" not in response.headers["content-type"]


def test_without_tokens_only_this_machine_is_served(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        result = shell.run("serve", "--host", host, "--port", "0")
        assert result.code == 2
        assert "no [tokens] are configured" in result.err
    with serve_api(tmp_path / "own") as api:
        assert api.host == "127.0.0.1"
        assert api.ask("GET", "/v1/crawls").status == 200
        # A name that an attacker's DNS points here, and a page of another site.
        assert api.ask("GET", "/v1/crawls", Host="evil.example:80").status == 403
        assert api.ask("GET", "/v1/crawls", Origin="http://evil.example").status == 403
        response = api.ask("POST", "/v1/crawls", b'{"seeds":["http://a/"]}', Content_Type="text/plain")
        assert response.status == 415


def test_a_port_in_use_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = Shell(tmp_path).run("serve", "--port", taken.getsockname()[1])
    assert result.code == 2
    assert "Address already in use; pass another --port." in result.err


def test_a_token_is_created_and_never_stored(tmp_path: Path) -> None:
    result = Shell(tmp_path).run("serve", "--make-token", "submit:shop")
    assert result.code == 0
    token = result.out.strip()
    assert token not in result.err
    line = result.err.strip().rpartition('= "')[2].rstrip('"')
    caller = Tokens({"x": line}).caller(f"Bearer {token}")
    assert caller is not None
    assert (caller.role, caller.app) == (Role.SUBMIT, "shop")
    assert Shell(tmp_path).run("serve", "--make-token", "king").code == 2
    with pytest.raises(SettingsError, match=r"tokens\.x must be"):
        Tokens({"x": f"admin {token}"})


def test_a_token_of_an_application_can_only_see_and_create_its_own_crawls(api: ApiProcess) -> None:
    admin, shop = (Client(api.url, token=TOKENS[role][0]) for role in ("admin", "submit:shop"))
    with admin, shop:
        admin.submit(seeds=["http://example.org/"], name="other", app="press", outputs=["main"], spider="nobody")
        mine = shop.submit(seeds=["http://example.org/"], outputs=["main"], spider="nobody")["id"]
        assert admin.crawl(mine)["policy"]["app"] == "shop"
        for seen in (list(shop.crawls()), list(shop.crawls(app="press"))):
            assert seen[0]["id"] == mine
            assert {crawl["app"] for crawl in seen} == {"shop"}
        for refused in (shop.crawl, shop.pause, shop.stop, shop.retry, lambda name: next(shop.failed(name))):
            with pytest.raises(UnknownCrawl):
                refused("press:other")
        with pytest.raises(ShoalError, match="bound to the application 'shop'"):
            shop.submit(seeds=["http://example.org/"], app="press")
        feed = {"action": "stop", "appid": "press", "uuid": "u", "crawlid": "other", "spiderid": "link"}
        assert api.ask("POST", "/feed", feed, Authorization=f"Bearer {TOKENS['submit:shop'][0]}").status == 403
        assert admin.crawl("press:other")["state"] == "running"
        admin.stop("press:other")
        shop.stop(mine)


def test_ids_are_per_application(api: ApiProcess) -> None:
    admin, shop = (Client(api.url, token=TOKENS[role][0]) for role in ("admin", "submit:shop"))
    request = {"seeds": ["http://example.org/"], "name": "same", "outputs": ["main"], "spider": "nobody"}
    with admin, shop:
        theirs = [admin.submit(**request)["id"], admin.submit(**request, app="press")["id"]]
        assert theirs == ["same", "press:same"]
        # Each application may use the name, and learns nothing about the others.
        mine = shop.submit(**request)
        assert mine == {"id": "shop:same", "created": True}
        assert shop.submit(**{**request, "name": "press:same"}) == {"id": "shop:press:same", "created": True}
        assert shop.crawl("same")["id"] == shop.crawl("shop:same")["id"] == "shop:same"
        shop.stop("same")
        assert [admin.crawl(name)["state"] for name in theirs] == ["running"] * 2
        absent = api.ask("GET", "/v1/crawls/press:none", Authorization=f"Bearer {TOKENS['submit:shop'][0]}")
        hidden = api.ask("GET", "/v1/crawls/press:same", Authorization=f"Bearer {TOKENS['submit:shop'][0]}")
        # Both are unknown in the same words; `press:same` is also the name of a crawl of the shop's own.
        assert absent.status == 404
        assert hidden.json["id"] == "shop:press:same"
        shop.stop("press:same")
        for name in theirs:
            admin.stop(name)
        for dots in (".", ".."):
            with pytest.raises(ShoalError, match="not only dots"):
                admin.submit(**{**request, "name": dots})


def test_options_that_only_administrators_may_set(api: ApiProcess, tmp_path: Path) -> None:
    with Client(api.url, token=TOKENS["submit"][0]) as client:
        with pytest.raises(ShoalError, match="ignore_robots requires a token with the role admin"):
            client.submit(seeds=["http://example.org/"], ignore_robots=True)
        for uri in (str(tmp_path / "x.db"), "redis://127.0.0.1:1/7/key", "postgresql://127.0.0.1:1/pages"):
            with pytest.raises(ShoalError, match=r"not a name in \[outputs\] requires"):
                client.submit(seeds=["http://example.org/"], outputs=[uri])
    with Client(api.url, token=TOKENS["admin"][0]) as client:
        crawl = client.submit(seeds=["http://example.org/"], ignore_robots=True, outputs=["main"], spider="nobody")[
            "id"
        ]
        assert client.crawl(crawl)["policy"]["ignore_robots"] is True
        client.stop(crawl)
        uri = "redis://127.0.0.1:1/7/key"
        crawl = client.submit(seeds=["http://example.org/"], outputs=[uri], spider="nobody")["id"]
        assert client.crawl(crawl)["policy"]["outputs"] == [uri]
        client.stop(crawl)


def test_request_bodies_are_bounded(api: ApiProcess) -> None:
    token = TOKENS["submit"][0]
    for body in (b'{"seeds":["' + b"a" * 5_000_000 + b'"]}', b"[" * 200_000):
        submitted = api.ask(
            "POST", "/v1/crawls", body, Authorization=f"Bearer {token}", Content_Type="application/json"
        )  # fmt: skip
        assert submitted.status in (413, 422)
    # A body that is sent in chunks, without its length.
    with socket.create_connection((api.host, api.port), 10) as line:
        head = f"POST /v1/crawls HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
        line.sendall(f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
        response = b""
        try:
            for _ in range(200):
                line.sendall(piece)
            response = line.recv(1000)
        except OSError:
            response = response or b" 413 "
        assert b" 413 " in response
    assert api.ask("GET", "/healthz").status == 200


def test_a_client_that_exceeds_the_rate_limit_gets_429(tmp_path: Path) -> None:
    token, line = create_token("read")
    with serve_api(tmp_path, settings=f'[api]\nrate = 2\n[tokens]\na = "{line}"\n', token=token) as api:

        def until_refused(**headers: str) -> list[ApiResponse]:
            """The responses up to the first 429. More than two requests per second use up the bucket."""
            responses = [api.ask("GET", "/v1/workers", **headers)]
            while responses[-1].status != 429 and len(responses) < 100:
                responses.append(api.ask("GET", "/v1/workers", **headers))
            return responses

        first, *_, refused = until_refused()
        assert first.status == 200
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1
        # A client waits as long as the server requests.
        assert [api.client.stats()["workers"] for _ in range(3)] == [0] * 3
        first, *_, refused = until_refused(Authorization="Bearer guessed")
        assert first.status == 401
        assert refused.status == 429
        assert api.ask("GET", "/healthz").status == 200


def test_a_rate_limit_bucket_refills_over_time() -> None:
    rates = RateLimiter(10.0)
    assert sum(rates.wait_seconds("a", 0.0) == 0 for _ in range(30)) == 20
    assert rates.wait_seconds("b", 0.0) == 0
    assert rates.wait_seconds("a", 0.0) == pytest.approx(0.1)
    assert rates.wait_seconds("a", 1.0) == 0
