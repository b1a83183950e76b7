"""A request and its response: what is sent, what is returned, how connections are used."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvloop

from shoal.errors import InvalidInput
from shoal.fetch import Fetcher, Request
from shoal.fetch.bandwidth import TokenBucket
from shoal.fetch.fetcher import PRUNE_SECONDS
from shoal.politeness.backoff import Fault
from shoal.settings import FetchSettings
from tests.fetch.failure import failure
from tests.site.hostile import Connection, Hostile, drip, keep, ok, resetting, silent

LOOPBACK = FetchSettings(allow_networks="127.0.0.0/8")


async def test_a_page_is_returned_whole(fetcher):
    body = bytes(range(256)) * 300
    async with Hostile({"/a?b=c": keep(ok(body, "Content-Type: text/html", "X-Two: 1", "x-two: 2"))}) as site:
        before = time.time()
        page = await fetcher.fetch(Request(url=site.url("/a?b=c")))
        assert (page.url, page.status, page.body) == (site.url("/a?b=c"), 200, body)
        assert [name for name, _ in page.headers] == ["content-length", "content-type", "x-two", "x-two"]
        assert page.all_headers("x-two") == ["1", "2"]
        assert (page.address, page.http_version) == ("127.0.0.1", "1.1")
        assert page.bytes_received == len(ok(body, "Content-Type: text/html", "X-Two: 1", "x-two: 2"))
        assert before <= page.started_at <= time.time()
        assert 0 < page.timings.connect <= page.timings.first_byte <= page.timings.total
        assert (page.timings.name_lookup, page.timings.tls) == (0, 0)


@pytest.mark.parametrize("status", [100, 204, 301, 304, 404, 429, 500, 599, 999])
async def test_every_status_is_a_response(fetcher, status):
    final = 200 if status == 100 else status
    reply = b"HTTP/1.1 100 Continue\r\n\r\n" + ok(b"") if status == 100 else ok(b"", status=f"{status} So")
    async with Hostile({"*": reply}) as site:
        assert (await fetcher.fetch(Request(url=site.url()))).status == final


async def test_headers_are_those_of_the_final_response_unfolded_and_without_trailers(fetcher):
    reply = (
        b"HTTP/1.1 103 Early Hints\r\nLink: </early>\r\nX-Early: yes\r\n\r\n"
        b"HTTP/1.1 100 Continue\r\n\r\n"
        b"HTTP/1.1 200 Fine\r\nX-Folded: one\r\n\t two\r\n  three\r\nX-Latin:  caf\xe9 \r\nX-Empty:\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX-Trailer: late\r\n\r\n"
    )
    async with Hostile({"*": reply}) as site:
        page = await fetcher.fetch(Request(url=site.url()))
        assert page.headers == (
            ("x-folded", "one two three"),
            ("x-latin", "café"),
            ("x-empty", ""),
            ("transfer-encoding", "chunked"),
        )
        assert page.body == b"body"


async def test_a_trailer_after_an_empty_body_is_not_a_header(fetcher):
    reply = b"HTTP/1.1 200 OK\r\nX-Head: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: late\r\n\r\n"
    async with Hostile({"*": reply}) as site:
        page = await fetcher.fetch(Request(url=site.url()))
        assert [name for name, _ in page.headers] == ["x-head", "transfer-encoding"]


async def test_a_request_is_sent_with_the_given_headers_and_few_others(fetcher):
    async with Hostile({"*": keep(ok(b"x"))}) as site:
        headers = (("User-Agent", "shoal/1"), ("X-Empty", ""), ("X-Latin", "café"))
        await fetcher.fetch(Request(url=site.url("/b/%c3%A9?x=|&y=%3d#part"), headers=headers))
        lines = site.requests[0].decode("latin-1").split("\r\n")
        assert lines[0] == "GET /b/%c3%A9?x=|&y=%3d HTTP/1.1"
        assert sorted(lines[1:-2]) == [
            "Accept-Encoding: gzip, deflate, br",
            "Accept: */*",
            f"Host: 127.0.0.1:{site.port}",
            "User-Agent: shoal/1",
            "X-Empty:",
            "X-Latin: café",
        ]


async def test_nothing_of_one_request_leaks_into_the_next(fetcher):
    async with Hostile({"*": keep(ok(b"x", "Set-Cookie: a=b; Path=/"))}) as site:
        await fetcher.fetch(Request(url=site.url("/"), headers=(("Authorization", "secret"), ("Cookie", "c=d"))))
        await fetcher.fetch(Request(url=site.url(host="user:word@127.0.0.1")))
        await fetcher.fetch(Request(url=site.url(), method="POST", body=b"abc"))
        await fetcher.fetch(Request(url=site.url(), method="HEAD"))
        await fetcher.fetch(Request(url=site.url("/%2f")))
        await fetcher.fetch(Request(url=site.url("/last")))
        assert site.header("authorization", 0) == "secret"
        assert site.header("authorization", 1).startswith("Basic ")
        last = site.requests[-1].lower()
        assert last.startswith(b"get /last ")
        for word in (b"authorization", b"cookie", b"content-length", b"expect"):
            assert word not in last


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_other_methods_send_their_body_without_waiting_for_100_continue(fetcher, method):
    body = b"x" * 2_000_000 if method in ("POST", "PUT") else b""
    bodies = []

    async def reply(connection: Connection) -> None:
        bodies.append(await connection.reader.readexactly(len(body)))
        await connection.send(ok(b"done"))

    async with Hostile({"*": reply}) as site:
        page = await fetcher.fetch(Request(url=site.url(), method=method, body=body))
        assert (page.body, bodies) == (b"done", [body])
        assert site.requests[0].startswith(method.encode())
        assert site.header("expect") == ""


async def test_a_response_to_head_has_no_body_whatever_its_content_length(fetcher):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"
    async with Hostile({"*": keep(head)}) as site:
        page = await fetcher.fetch(Request(url=site.url(), method="HEAD"))
        assert (page.status, page.body, page.header("content-length")) == (200, b"", "99999999999")


@pytest.mark.parametrize(
    "header", [("X", "a\r\nInjected: 1"), ("X\r\nInjected", "1"), ("X", "a\nb"), ("", "x"), ("a b", "x"), ("X", "\0")]
)
async def test_a_header_cannot_inject_another(fetcher, header):
    async with Hostile({"*": ok(b"x")}) as site:
        with pytest.raises(InvalidInput, match=r"header"):
            await fetcher.fetch(Request(url=site.url(), headers=(header,)))
        assert site.connections == 0


async def test_one_connection_serves_many_requests(fetcher):
    async with Hostile({"*": keep(ok(b"x"))}) as site:
        pages = [await fetcher.fetch(Request(url=site.url(f"/{number}"))) for number in range(50)]
        assert (site.connections, len(site.requests)) == (1, 50)
        assert pages[1].timings.connect == 0


async def test_three_hundred_concurrent_fetches_succeed(fetcher):
    gate = asyncio.Event()

    async def reply(connection: Connection) -> None:
        if len(site.requests) == 300:
            gate.set()
        await gate.wait()
        await connection.send(ok(b"x" * 5000))

    async with Hostile({"*": reply}) as site:
        pages = await asyncio.gather(*(fetcher.fetch(Request(url=site.url(f"/{n}"))) for n in range(300)))
        assert [page.url for page in pages] == [site.url(f"/{n}") for n in range(300)]
        assert all(page.body == b"x" * 5000 for page in pages)
        assert site.connections == 300, "all were open at once"


async def test_the_number_of_idle_connections_is_bounded():
    fetcher = Fetcher(FetchSettings(allow_networks="127.0.0.0/8", connections=5))
    gate = asyncio.Event()

    async def reply(connection: Connection) -> None:
        if len(site.requests) >= 20:
            gate.set()
        await gate.wait()
        await connection.send(ok(b"x"))

    async with Hostile({"*": reply}) as site:
        await asyncio.gather(*(fetcher.fetch(Request(url=site.url(f"/{n}"))) for n in range(20)))
        await site.hung_up(left=5)
        await fetcher.close()


@pytest.mark.parametrize("reply", [silent(), drip(b"x" * 100, seconds=0.05, first=b"HTTP/1.1 200 OK\r\n\r\n")])
async def test_a_cancelled_fetch_closes_its_connection_at_once(fetcher, reply):
    async with Hostile({"/slow": reply, "*": keep(ok(b"x"))}) as site:
        task = asyncio.create_task(fetcher.fetch(Request(url=site.url("/slow"))))
        await site.requested.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await site.hung_up()
        assert (await fetcher.fetch(Request(url=site.url()))).body == b"x"


async def test_closing_the_fetcher_ends_open_requests():
    fetcher = Fetcher(LOOPBACK)
    async with Hostile({"*": silent()}) as site:
        task = asyncio.create_task(fetcher.fetch(Request(url=site.url())))
        await site.requested.wait()
        await fetcher.close()
        with pytest.raises(asyncio.CancelledError):
            await task
        await site.hung_up()
        await fetcher.close()


async def test_a_fetcher_can_be_created_outside_of_an_event_loop():
    fetcher = await asyncio.to_thread(Fetcher, LOOPBACK)
    async with Hostile({"*": ok(b"x")}) as site:
        assert (await fetcher.fetch(Request(url=site.url()))).body == b"x"
        await fetcher.close()


def test_a_fetcher_works_on_either_event_loop():
    async def main() -> bytes:
        fetcher = Fetcher(LOOPBACK)
        async with Hostile({"*": keep(ok(b"x"))}) as site:
            pages = await asyncio.gather(*(fetcher.fetch(Request(url=site.url())) for _ in range(10)))
            await fetcher.close()
            return b"".join(page.body for page in pages)

    assert asyncio.run(main()) == uvloop.run(main()) == b"x" * 10


async def test_a_refused_and_a_reset_connection_are_different_faults(fetcher):
    async with Hostile({"*": resetting()}) as site:
        error = await failure(fetcher, site.url())
        assert (error.fault, error.reason) == (Fault.RESET, "reset")
    assert (await failure(fetcher, site.url())).fault == Fault.REFUSED


async def test_a_connection_closed_between_two_requests_is_opened_again(fetcher):
    """A server may close an idle connection at any time; this must not fail the next request."""
    async with Hostile({"*": ok(b"x")}) as site:
        for _ in range(5):
            await fetcher.fetch(Request(url=site.url()))
            await site.hung_up()
        assert (site.connections, len(site.requests)) == (5, 5)
        site.replies["*"] = keep(ok(b"x"))
        await fetcher.fetch(Request(url=site.url()))
        await asyncio.sleep(PRUNE_SECONDS + 0.1)
        for _ in range(5):
            await fetcher.fetch(Request(url=site.url()))
        assert site.connections == 6, "and connections are kept again afterwards"


@pytest.mark.parametrize("last", [resetting(), b""], ids=["reset", "closed"])
async def test_a_request_is_sent_once_even_if_the_connection_ends_without_a_response(fetcher, last):
    """The host's delay comes first: the server may have seen the request."""
    async with Hostile({"/1": keep(ok(b"x")), "/2": last}) as site:
        await fetcher.fetch(Request(url=site.url("/1")))
        error = await failure(fetcher, site.url("/2"))
        assert (error.fault, error.reason) == (Fault.RESET, "lost connection")
        assert len(site.requests) == 2
        assert (await fetcher.fetch(Request(url=site.url("/1")))).body == b"x"


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"])
async def test_proxies_of_the_environment_are_ignored(monkeypatch, name):
    async with Hostile({"*": ok(b"direct")}) as site, Hostile({"*": ok(b"proxy")}) as proxy:
        monkeypatch.setenv(name, proxy.url())
        fetcher = Fetcher(LOOPBACK)
        assert (await fetcher.fetch(Request(url=site.url()))).body == b"direct"
        assert proxy.connections == 0
        await fetcher.close()


async def test_passwords_in_netrc_are_not_sent(monkeypatch, tmp_path):
    (tmp_path / ".netrc").write_text("default login me password word\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    fetcher = Fetcher(LOOPBACK)
    async with Hostile({"*": ok(b"")}) as site:
        await fetcher.fetch(Request(url=site.url()))
        assert site.header("authorization") == ""
        await fetcher.close()


async def test_a_password_in_a_url_is_in_no_message(fetcher):
    async with Hostile({"*": b"nonsense\r\n\r\n"}) as site:
        for host in ("me:hunter2@127.0.0.1", "me:hunter2@10.0.0.1"):
            assert "hunter2" not in str(await failure(fetcher, site.url(host=host)))


def test_a_bucket_in_debt_makes_the_next_request_wait():
    bucket = TokenBucket(1000, now=0.0)
    assert bucket.wait_seconds(0.0) == 0
    bucket.spend(3000)
    assert bucket.wait_seconds(0.0) == 2.0
    assert bucket.wait_seconds(1.5) == 0.5
    assert bucket.wait_seconds(100.0) == 0
    bucket.spend(1000)
    assert bucket.wait_seconds(100.0) == 0, "no more than a second's worth is saved up"
    bucket.spend(500)
    assert bucket.wait_seconds(100.0) == 0.5


async def test_bytes_received_stay_under_the_bandwidth():
    rate, size, count = 200_000, 40_000, 15
    fetcher = Fetcher(FetchSettings(allow_networks="127.0.0.0/8", bandwidth=rate))
    async with Hostile({"*": keep(ok(b"x" * size))}) as site:
        started = time.monotonic()
        received = sum([(await fetcher.fetch(Request(url=site.url()))).bytes_received for _ in range(count)])
        elapsed = time.monotonic() - started
        assert received >= size * count
        # A second's worth is free at the start, and what the last fetch received is not yet paid for.
        assert received - rate - size * 2 <= rate * elapsed
        await fetcher.close()


async def test_one_large_body_stays_under_the_bandwidth():
    rate = 200_000
    fetcher = Fetcher(FetchSettings(allow_networks="127.0.0.0/8", bandwidth=rate))
    async with Hostile({"*": ok(b"x" * 3 * rate)}) as site:
        started = time.monotonic()
        await fetcher.fetch(Request(url=site.url()))
        assert time.monotonic() - started >= 1.0
        await fetcher.close()
