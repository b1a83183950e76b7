"""Responses that are not HTTP: a page, or MALFORMED or TRUNCATED, never another exception."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from shoal.errors import FetchError, InvalidInput
from shoal.fetch import Request
from shoal.fetch import fetcher as fetcher_module
from shoal.model.response import Response
from shoal.politeness.backoff import Fault
from tests.fetch.failure import failure
from tests.site.hostile import Hostile, keep, ok

VECTORS = Path(__file__).parents[3] / "shared/data/wpt/fetch/h1-parsing"

# Where libcurl reads what the test suite of browsers wants refused. None of it can reach another answer: a body that
# begins where the sender did not mean it to ends with the connection.
READ_ALL_THE_SAME = {
    "a bare LF ends a line (RFC 9112 2.2), so the head ends here and the rest is body": {
        ("LF", "after-reason"),
        ("LF", "leading"),
        ("LF", "after-value"),
    },
    "any space after the status is a space, and the reason is text for people (RFC 9112 4)": {
        ("HTAB", "after-num"),
        ("SP", "after-num"),
        ("COLON", "after-num"),
        ("COLON", "before-reason"),
        ("COLON", "after-reason"),
    },
    "a line that starts with a space before any header is dropped (RFC 9112 2.2)": {
        ("HTAB", "leading"),
        ("SP", "leading"),
    },
    "a header with a bad name is dropped": {("HTAB", "in-name"), ("SP", "in-name"), ("COLON", "leading")},
    "a space between name and colon is removed, as proxies must (RFC 9112 5.1)": {
        ("HTAB", "before-colon"),
        ("SP", "before-colon"),
    },
    "a colon is allowed in values (RFC 9110 5.5), and the first one ends the name": {
        ("COLON", "in-name"),
        ("COLON", "before-colon"),
        ("COLON", "after-colon"),
        ("COLON", "in-value"),
        ("COLON", "after-value"),
    },
}
EXCEPTIONS = {name for group in READ_ALL_THE_SAME.values() for name in group}


def vectors() -> list[tuple[str, str, str]]:
    try:
        expected = json.loads((VECTORS / "expected.json").read_text())["expected"]
    except FileNotFoundError:
        return []
    return [(sign, place, outcomes[0]) for sign, places in expected.items() for place, outcomes in places.items()]


@pytest.mark.skipif(not vectors(), reason=f"the tests of browsers are not at {VECTORS}")
def test_all_vectors_of_browsers_are_present():
    assert len(vectors()) == 102
    refused = {(sign, place) for sign, place, outcome in vectors() if outcome == "Network Error"}
    assert not EXCEPTIONS - refused


@pytest.mark.parametrize(("sign", "place", "outcome"), vectors())
async def test_an_odd_response_is_read_as_in_browsers_or_as_a_listed_exception(fetcher, sign, place, outcome):
    raw = (VECTORS / f"resources/parsing_{sign}_{place}.asis").read_bytes()
    async with Hostile({"*": raw}) as site:
        if outcome == "Valid" or (sign, place) in EXCEPTIONS:
            page = await fetcher.fetch(Request(url=site.url(), timeout_seconds=5))
            assert page.status == 200
            assert page.body.endswith(b"Test.")
            assert all(name and name.isascii() and name.replace("-", "").isalpha() for name, _ in page.headers)
        else:
            error = await failure(fetcher, site.url(), timeout_seconds=5)
            assert error.fault in (Fault.MALFORMED, Fault.TRUNCATED)
            assert error.reason in ("not http", "bad header", "truncated")


async def test_a_nul_in_a_header_is_malformed(fetcher):
    async with Hostile({"*": ok(b"x", "X-Nul: a\0b")}) as site:
        assert (await failure(fetcher, site.url())).fault == Fault.MALFORMED


@pytest.mark.parametrize(
    ("raw", "fault", "reason"),
    [
        (b"", Fault.RESET, "no answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", Fault.TRUNCATED, "truncated"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", Fault.TRUNCATED, "truncated"),
        (b"HTTP/1.1 200 OK\r\n", Fault.TRUNCATED, "truncated"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", Fault.TRUNCATED, "truncated"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n", Fault.TRUNCATED, "truncated"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab", Fault.MALFORMED, "bad chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 30, Fault.MALFORMED, "bad chunk"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nxx", Fault.MALFORMED, "bad coding"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxx", Fault.MALFORMED, "bad coding"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 4\r\n\r\nxxxx", Fault.MALFORMED, "bad coding"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", Fault.MALFORMED, "bad header"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", Fault.MALFORMED, "bad header"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", Fault.MALFORMED, "bad header"),
        (b"<html>no head at all</html>", Fault.MALFORMED, "not http"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Fault.MALFORMED, "not http"),
        (b"HTTP/9.9 200 OK\r\n\r\n", Fault.MALFORMED, "not http"),
        (b"HTTP/1.1 20 OK\r\n\r\n", Fault.MALFORMED, "not http"),
        (b"\x15\x03\x01\x00\x02\x02\x46", Fault.MALFORMED, "not http"),
    ],
)
async def test_a_broken_response_is_a_named_fault(fetcher, raw, fault, reason):
    async with Hostile({"*": raw}) as site:
        error = await failure(fetcher, site.url(), timeout_seconds=5)
        assert (error.fault, error.reason) == (fault, reason), error


async def test_a_body_longer_than_announced_is_cut_at_the_announced_length(fetcher):
    async with Hostile({"*": keep(ok(b"abc") + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")}) as site:
        for _ in range(3):
            assert (await fetcher.fetch(Request(url=site.url()))).body == b"abc"
        assert site.connections == 3, "what is left over poisons no later request"


async def test_a_connection_is_not_used_again_after_a_head_with_two_lengths(fetcher, monkeypatch):
    # Else, a connection that was found dead would explain new ones.
    monkeypatch.setattr(fetcher_module, "PRUNE_SECONDS", 0.0)
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    async with Hostile({"/good": keep(ok(b"abc")), "*": keep(raw)}) as site:
        for _ in range(3):
            assert (await fetcher.fetch(Request(url=site.url("/good")))).body == b"abc"
        assert site.connections == 1
        # The first one comes on a connection that was used before.
        for path in ("/bad", "/good", "/bad", "/good"):
            assert (await fetcher.fetch(Request(url=site.url(path)))).body == b"abc"
        assert site.connections == 4


@pytest.mark.parametrize(
    "name", ["Host", "content-length", "Transfer-Encoding", "Connection", "Expect", "Proxy-Authorization", "TE"]
)
async def test_a_header_that_frames_or_reroutes_a_request_is_not_sent(fetcher, name):
    async with Hostile({"*": ok(b"abc")}) as site:
        with pytest.raises(InvalidInput, match="cannot be sent"):
            await fetcher.fetch(Request(url=site.url(), headers=((name, "200"),)))
        assert site.connections == 0


@pytest.mark.parametrize("seed", range(40))
async def test_random_damage_is_a_page_or_a_fetch_error(fetcher, seed):
    rng = random.Random(seed)
    whole = (
        b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Type: text/html\r\nContent-Encoding: identity\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    )
    async with Hostile({}) as site:
        for _ in range(25):
            raw = bytearray(whole)
            for _ in range(rng.randint(1, 4)):
                place = rng.randrange(len(raw))
                raw[place : place + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
            site.replies["*"] = bytes(raw)
            fetched = fetcher.fetch(Request(url=site.url(), timeout_seconds=3))
            outcome = (await asyncio.gather(fetched, return_exceptions=True))[0]
            fault = outcome.fault if isinstance(outcome, FetchError) else ""
            named = fault in (Fault.MALFORMED, Fault.TRUNCATED, Fault.RESET)
            assert isinstance(outcome, Response) or named, (outcome, bytes(raw))
