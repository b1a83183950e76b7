"""Through a real forward proxy: which requests it gets, and which it never gets."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from shoal.fetch import Fetcher, Request
from shoal.politeness.backoff import Fault
from shoal.settings import FetchSettings
from tests.fetch.failure import failure
from tests.fetch.programs import tinyproxy
from tests.servers import free_port
from tests.site.hostile import Hostile, keep, ok


def through(port: int, allow: str = "127.0.0.0/8") -> FetchSettings:
    return FetchSettings(allow_networks=allow, proxy=f"http://127.0.0.1:{port}")


async def here(host: str) -> list[str]:
    return ["127.0.0.1"]


def proxy_log(folder: Path) -> str:
    return (folder / "log").read_text()


async def test_an_http_page_is_fetched_through_the_proxy(tmp_path):
    async with Hostile({"*": ok(b"far", "X-From: site")}) as site:
        with tinyproxy(tmp_path) as port:
            fetcher = Fetcher(through(port))
            page = await fetcher.fetch(Request(url=site.url("/a?b=c")))
            assert (page.status, page.body, page.header("x-from")) == (200, b"far", "site")
            assert f"GET http://127.0.0.1:{site.port}/a?b=c" in proxy_log(tmp_path)
            assert "Via" in site.requests[0].decode()
            await fetcher.close()


async def test_https_is_tunnelled_to_the_address_that_was_checked(tmp_path, monkeypatch):
    """The proxy never learns the name, so it cannot look up another address for it."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("site.test").configure_cert(context)
    async with Hostile({"*": keep(ok(b"far", "X-From: site"))}, tls=context) as site:
        with tinyproxy(tmp_path, connect_port=site.port) as port:
            fetcher = Fetcher(through(port), resolver=here)
            for _ in range(3):
                page = await fetcher.fetch(Request(url=site.url(host="site.test")))
                assert (page.status, page.body) == (200, b"far")
                assert page.headers == (("content-length", "3"), ("x-from", "site")), "not those of the proxy"
            assert f"CONNECT 127.0.0.1:{site.port}" in proxy_log(tmp_path)
            assert "site.test" not in proxy_log(tmp_path)
            assert site.header("host") == f"site.test:{site.port}"
            assert site.connections == 1
            await fetcher.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", ["127.0.0.1", "0x7f.1", "[::ffff:7f00:1]", "harmless.test"])
async def test_no_request_is_sent_to_a_forbidden_address_through_the_proxy(tmp_path, scheme, host):
    async with Hostile({"*": ok(b"inside")}) as site, Hostile({"*": ok(b"proxied")}) as proxy:
        fetcher = Fetcher(through(proxy.port, allow=""), resolver=here)
        url = site.url(host=host).replace("http:", f"{scheme}:")
        error = await failure(fetcher, url)
        assert (error.fault, error.reason) == (Fault.FORBIDDEN_ADDRESS, "forbidden address: loopback")
        assert (site.connections, proxy.connections) == (0, 0)
        await fetcher.close()


async def test_no_proxy_in_the_environment_does_not_bypass_the_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("NO_PROXY", "*")
    async with Hostile({"*": ok(b"direct")}) as site, Hostile({"*": ok(b"proxied")}) as proxy:
        fetcher = Fetcher(through(proxy.port))
        assert (await fetcher.fetch(Request(url=site.url()))).body == b"proxied"
        assert site.connections == 0
        await fetcher.close()


async def test_an_unavailable_or_refusing_proxy_is_a_named_fault(tmp_path):
    gone = Fetcher(through(free_port()))
    for url in ("http://127.0.0.1:8080/", "https://127.0.0.1:8443/"):
        error = await failure(gone, url)
        assert (error.fault, error.reason) == (Fault.PROXY, "proxy refused")
    await gone.close()
    async with Hostile({"*": ok(b"who?", status="407 Proxy Authentication Required")}) as proxy:
        fetcher = Fetcher(through(proxy.port))
        error = await failure(fetcher, "https://127.0.0.1:8443/")
        assert (error.fault, error.reason) == (Fault.PROXY, "proxy requires a login")
        await fetcher.close()
    async with Hostile({"*": ok(b"no", status="403 Forbidden")}) as proxy:
        fetcher = Fetcher(through(proxy.port))
        error = await failure(fetcher, "https://127.0.0.1:8443/")
        assert (error.fault, error.reason) == (Fault.REFUSED, "proxy")
        await fetcher.close()


async def test_the_password_of_the_proxy_is_sent_to_it_and_never_shown(tmp_path):
    async with Hostile({"*": ok(b"", status="407 Proxy Authentication Required")}) as proxy:
        settings = FetchSettings(allow_networks="127.0.0.0/8", proxy=f"http://me:hunter2@127.0.0.1:{proxy.port}")
        fetcher = Fetcher(settings)
        error = await failure(fetcher, "https://127.0.0.1:8443/")
        assert proxy.header("proxy-authorization").startswith("Basic ")
        assert "hunter2" not in str(error) + repr(settings)
        await fetcher.close()
