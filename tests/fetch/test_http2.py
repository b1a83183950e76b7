"""HTTP/2 with a real nginx, checked by its log."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from shoal.fetch import Fetcher, Request
from shoal.politeness.backoff import Fault
from shoal.settings import FetchSettings
from tests.fetch.failure import failure
from tests.fetch.programs import nginx
from tests.servers import wait_until
from tests.site.hostile import Hostile, ok

SETTINGS = FetchSettings(allow_networks="127.0.0.0/8")


async def here(host: str) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """The URL of an nginx that speaks HTTP/2 over TLS, and its folder."""
    folder = tmp_path / "nginx"
    folder.mkdir()
    authority = trustme.CA()
    certificate = authority.issue_cert("site.test")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / "pair.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    pair = folder / "pair.pem"
    block = f"listen 127.0.0.1:PORT ssl http2; ssl_certificate {pair}; ssl_certificate_key {pair}; gzip on;"
    with nginx(folder, block + "default_type text/html;") as port:
        (folder / "site/page.html").write_bytes(b"<p>two</p>" * 5000)
        yield f"https://site.test:{port}", folder


def seen(folder: Path, count: int) -> list[list[str]]:
    """Connection, protocol and path of each request, as soon as so many are logged."""
    log = folder / "seen.log"
    wait_until(lambda: len(log.read_text().splitlines()) >= count, "nginx has logged the requests")
    return [line.split(" ", 2) for line in log.read_text().splitlines()]


async def test_a_page_is_fetched_over_http2_with_its_headers_and_decoded(site):
    url, folder = site
    fetcher = Fetcher(SETTINGS, resolver=here)
    page = await fetcher.fetch(Request(url=f"{url}/page.html?a=%3d", headers=(("User-Agent", "shoal"),)))
    assert (page.status, page.body, page.http_version) == (200, b"<p>two</p>" * 5000, "2")
    assert page.header("content-type") == "text/html"
    assert page.header("content-encoding") == "gzip"
    assert page.bytes_received < 5000
    missing = await fetcher.fetch(Request(url=f"{url}/missing"))
    assert missing.status == 404
    await fetcher.close()
    assert [request[1:] for request in seen(folder, 2)] == [["HTTP/2.0", "/page.html?a=%3d"], ["HTTP/2.0", "/missing"]]


async def test_sequential_and_concurrent_requests_share_a_connection(site):
    url, folder = site
    fetcher = Fetcher(SETTINGS, resolver=here)
    for number in range(5):
        await fetcher.fetch(Request(url=f"{url}/page.html?{number}"))
    await asyncio.gather(*(fetcher.fetch(Request(url=f"{url}/page.html?at-once{n}")) for n in range(50)))
    await fetcher.close()
    requests = seen(folder, 55)
    assert len(requests) == 55
    assert len({connection for connection, *_ in requests}) == 1


async def test_a_body_over_the_limit_ends_its_stream_and_not_the_connection(site):
    url, folder = site
    fetcher = Fetcher(SETTINGS, resolver=here)
    for _ in range(3):
        error = await failure(fetcher, f"{url}/page.html", body_bytes=1000)
        assert (error.fault, error.reason) == (Fault.TOO_LARGE, "too large")
        page = await fetcher.fetch(Request(url=f"{url}/page.html", body_bytes=1000, cut=True))
        assert len(page.body) == 1000
    assert (await fetcher.fetch(Request(url=f"{url}/page.html"))).status == 200
    await fetcher.close()
    assert len({connection for connection, *_ in seen(folder, 7)}) == 1


def frame(kind: int, flags: int, stream: int, data: bytes = b"") -> bytes:
    return len(data).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + data


SETTINGS_FRAME = frame(4, 0, 0)
STATUS_200 = b"\x88"


@pytest.mark.parametrize(
    ("reply", "fault", "reason"),
    [
        (b"\xff" * 500, Fault.MALFORMED, "http/2"),
        (ok(b"not in this protocol"), Fault.MALFORMED, "http/2"),
        (b"", Fault.RESET, "reset"),
        (SETTINGS_FRAME, Fault.RESET, "reset"),
        (SETTINGS_FRAME + frame(1, 4, 1, STATUS_200), Fault.RESET, "reset"),
        (SETTINGS_FRAME + frame(3, 0, 1, b"\0\0\0\2"), Fault.RESET, "http/2 stream"),
        (SETTINGS_FRAME + frame(7, 0, 0, b"\0\0\0\0\0\0\0\1"), Fault.RESET, "http/2 stream"),
        (SETTINGS_FRAME + frame(1, 4, 1, b"\xff" * 6), Fault.MALFORMED, "http/2"),
        (SETTINGS_FRAME + frame(1, 5, 1), Fault.MALFORMED, "http/2"),
        (SETTINGS_FRAME + frame(0, 1, 1, b"body"), Fault.MALFORMED, "http/2"),
        (SETTINGS_FRAME + frame(1, 4, 1, b"\x88\x0f\x0d\x0210") + frame(0, 1, 1, b"3"), Fault.MALFORMED, "http/2"),
    ],
    ids=["noise", "http/1", "nothing", "settings", "status", "reset", "goaway", "hpack", "no status", "data", "length"],
)
async def test_a_broken_response_is_a_named_fault(tmp_path, monkeypatch, reply, fault, reason):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    authority.issue_cert("site.test").configure_cert(context)
    # The first line of a connection ("PRI * HTTP/2.0") reads like a request for "*".
    async with Hostile({"*": reply}, tls=context) as site:
        fetcher = Fetcher(SETTINGS, resolver=here)
        error = await failure(fetcher, site.url(host="site.test"), timeout_seconds=5)
        assert (error.fault, error.reason) == (fault, reason), error
        await fetcher.close()


async def test_a_cancelled_fetch_does_not_affect_others_on_its_connection(site):
    url, _ = site
    fetcher = Fetcher(SETTINGS, resolver=here)
    await fetcher.fetch(Request(url=f"{url}/page.html"))
    tasks = [asyncio.create_task(fetcher.fetch(Request(url=f"{url}/page.html?{n}"))) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[::2])
    assert all(not isinstance(outcome, BaseException) and outcome.status == 200 for outcome in outcomes[1::2])
    await fetcher.close()
