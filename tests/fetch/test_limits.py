"""Bombs, endless responses and slow ones: each ends in time, as a named fault, and in bounded memory."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import resource
import socket
import time
import zlib
from pathlib import Path

import pytest

from shoal.fetch import Fetcher, Request
from shoal.politeness.backoff import Fault
from shoal.settings import FetchSettings
from tests.fetch.failure import failure
from tests.site.hostile import Connection, Hostile, drip, endless, keep, ok, silent

SAMPLES = Path(__file__).parents[3] / "shared/data/scrapy/tests/sample_data/compressed"
MEBIBYTE = 1 << 20
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
ENDLESS = b"HTTP/1.1 200 OK\r\n\r\n"


def sample(name: str) -> bytes:
    if not SAMPLES.is_dir():
        pytest.skip(f"Scrapy's samples are not at {SAMPLES}")
    return (SAMPLES / name).read_bytes()


class Growth:
    """How far the process grew at its largest, in bytes; a context manager, the server of the test included."""

    def __enter__(self) -> Growth:
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        self._before = _status("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes = _status("VmHWM") - self._before


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("name", "coding"), [("bomb-br.bin", "br"), ("bomb-gzip.bin", "gzip"), ("bomb-deflate.bin", "deflate")]
)
async def test_a_decompression_bomb_is_stopped_at_the_limit(fetcher, name, coding):
    bomb = ok(sample(name), f"Content-Encoding: {coding}")
    async with Hostile({"*": bomb}) as site:
        with Growth() as growth:
            error = await failure(fetcher, site.url(), body_bytes=MEBIBYTE)
        assert (error.fault, error.reason) == (Fault.TOO_LARGE, "too large")
        assert growth.bytes < 17 * MEBIBYTE


async def test_a_megabyte_that_decodes_to_a_gigabyte_takes_little_memory(fetcher):
    press = zlib.compressobj(9, wbits=-15)
    block = press.compress(b"\0" * MEBIBYTE) + press.flush(zlib.Z_FULL_FLUSH)
    bomb = b"\x1f\x8b\x08" + b"\0" * 7 + block * 1024
    async with Hostile({"*": ok(bomb, "Content-Encoding: gzip")}) as site:
        with Growth() as growth:
            error = await failure(fetcher, site.url(), body_bytes=10 * MEBIBYTE)
        assert (error.fault, error.reason) == (Fault.TOO_LARGE, "too large")
        assert growth.bytes < 26 * MEBIBYTE


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate"])
async def test_an_empty_body_may_have_any_coding(fetcher, coding):
    """Redirects often name the coding of a body that they do not have."""
    chunked = CHUNKED[:-2] + f"Content-Encoding: {coding}\r\n\r\n0\r\n\r\n".encode()
    length = ok(b"", f"Content-Encoding: {coding}")
    async with Hostile({"/length": keep(length), "/chunked": keep(chunked)}) as site:
        for path in ("/length", "/chunked"):
            assert (await fetcher.fetch(Request(url=site.url(path)))).body == b""


async def test_data_after_the_end_of_a_gzip_stream_is_a_named_failure(fetcher):
    """Browsers forgive it, libcurl does not; nothing here can tell it from a stream that is damaged."""
    async with Hostile({"*": ok(gzip.compress(b"page") + b"\r\n\0\0", "Content-Encoding: gzip")}) as site:
        error = await failure(fetcher, site.url())
        assert (error.fault, error.reason) == (Fault.MALFORMED, "bad coding")


@pytest.mark.parametrize(
    "reply",
    [
        endless(CHUNKED, CHUNK),
        endless(ENDLESS, b"x" * 65536),
        endless(b"HTTP/1.0 200 OK\r\nContent-Length: 99999999999\r\n\r\n", b"x" * 65536),
    ],
    ids=["chunked", "until close", "announced"],
)
async def test_an_endless_body_is_stopped_at_the_limit(fetcher, reply):
    async with Hostile({"*": reply}) as site:
        with Growth() as growth:
            error = await failure(fetcher, site.url(), body_bytes=5 * MEBIBYTE)
        assert (error.fault, error.reason) == (Fault.TOO_LARGE, "too large")
        assert growth.bytes < 21 * MEBIBYTE
        await site.hung_up()


async def test_an_endless_stream_that_decodes_to_nothing_is_stopped(fetcher):
    press = zlib.compressobj(wbits=31)
    start = press.compress(b"") + press.flush(zlib.Z_SYNC_FLUSH)
    nothing = b"\0\0\0\xff\xff" * 10_000
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
    async with Hostile({"*": endless(head + start, nothing)}) as site:
        error = await failure(fetcher, site.url(), body_bytes=MEBIBYTE, timeout_seconds=20)
        assert (error.fault, error.reason) == (Fault.TOO_LARGE, "too large")


@pytest.mark.parametrize("size", [0, 1, 99_999, 100_000])
async def test_a_body_within_the_limit_is_whole(fetcher, size):
    body = b"x" * size
    pressed = ok(gzip.compress(body), "Content-Encoding: gzip")
    async with Hostile({"/plain": keep(ok(body)), "/gzip": keep(pressed)}) as site:
        for path in ("/plain", "/gzip"):
            assert (await fetcher.fetch(Request(url=site.url(path), body_bytes=100_000))).body == body


@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_a_body_over_the_limit_fails_or_is_cut(fetcher, coding):
    body = b"0123456789" * 50_000
    data = gzip.compress(body) if coding == "gzip" else body
    async with Hostile({"*": keep(ok(data, f"Content-Encoding: {coding}"))}) as site:
        error = await failure(fetcher, site.url(), body_bytes=100_000)
        assert (error.fault, error.reason) == (Fault.TOO_LARGE, "too large")
        page = await fetcher.fetch(Request(url=site.url(), body_bytes=100_000, cut=True))
        assert (page.status, page.body) == (200, body[:100_000])


async def test_an_endless_body_can_be_cut(fetcher):
    async with Hostile({"*": endless(CHUNKED, CHUNK)}) as site:
        page = await fetcher.fetch(Request(url=site.url(), body_bytes=500 * 1024, cut=True))
        assert (page.status, len(page.body)) == (200, 500 * 1024)
        await site.hung_up()


@pytest.mark.parametrize(
    ("name", "coding"),
    [
        ("html-gzip.bin", "gzip"),
        ("html-gzip.bin", "x-gzip"),
        ("html-br.bin", "br"),
        ("html-rawdeflate.bin", "deflate"),
        ("html-zlibdeflate.bin", "deflate"),
        ("html-gzip.bin", "GZIP, identity"),
    ],
)
async def test_the_codings_in_accept_encoding_are_decoded(fetcher, name, coding):
    async with Hostile({"*": keep(ok(sample(name), f"Content-Encoding: {coding}"))}) as site:
        page = await fetcher.fetch(Request(url=site.url()))
        assert page.body.startswith(b"<!DOCTYPE") or b"<html" in page.body[:1000].lower()
        assert page.bytes_received < len(page.body)
        assert site.header("accept-encoding") == "gzip, deflate, br"


@pytest.mark.parametrize("coding", ["zstd", "compress", "dcb", "nonsense"])
async def test_a_coding_that_is_not_in_accept_encoding_is_a_named_failure(fetcher, coding):
    async with Hostile({"*": ok(b"some bytes", f"Content-Encoding: {coding}")}) as site:
        error = await failure(fetcher, site.url())
        assert (error.fault, error.reason) == (Fault.MALFORMED, "unknown coding")


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Encoding: gzip, deflate"],
        ["Content-Encoding: gzip", "content-encoding: gzip"],
        ["Content-Encoding: gzip,gzip,gzip,gzip,gzip,gzip,gzip,gzip"],
        ["Content-Encoding: gzip,", " gzip"],
    ],
)
async def test_codings_in_layers_are_refused(fetcher, lines):
    async with Hostile({"*": ok(gzip.compress(gzip.compress(b"x")), *lines)}) as site:
        error = await failure(fetcher, site.url())
        assert error.fault == Fault.MALFORMED
        assert error.reason in ("stacked codings", "bad coding")


@pytest.mark.parametrize("name", ["truncated-crc-error-short.gz", "truncated-crc-error.gz", "unexpected-eof.gz"])
async def test_a_truncated_gzip_stream_is_a_page_up_to_its_end(fetcher, name):
    """As in browsers: a response is complete if its length is right, whatever its coding."""
    data = sample(name)
    async with Hostile({"*": ok(data, "Content-Encoding: gzip")}) as site:
        page = await fetcher.fetch(Request(url=site.url()))
        assert page.body
        assert page.body.startswith(zlib.decompressobj(wbits=31).decompress(data)[:1000])


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"y" * 1000 + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\n", b"a:b\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"z" * 1000),
        (b"HTTP/1.1 200 OK\r\nX-Folded: a\r\n", b" " + b"z" * 1000 + b"\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
        (b"HTTP/1.1 ", b"2"),
        (b"", b"\r\n"),
        (CHUNKED + b"0\r\n", b"X-Trailer: " + b"y" * 1000 + b"\r\n"),
    ],
    ids=["lines", "short lines", "one line", "folded", "100", "103", "status", "nothing", "trailers"],
)
async def test_endless_headers_are_stopped(fetcher, first, again):
    async with Hostile({"*": endless(first, again * 50)}) as site:
        with Growth() as growth:
            error = await failure(fetcher, site.url(), timeout_seconds=10)
        # libcurl's own limits: 300 KB and 5,000 lines, everything before the final response included.
        empty = (Fault.MALFORMED, "not http")
        assert (error.fault, error.reason) == (empty if again == b"\r\n" else (Fault.TOO_LARGE, "headers too large"))
        assert growth.bytes < 16 * MEBIBYTE
        await site.hung_up()


@pytest.mark.parametrize(
    "reply",
    [
        silent(),
        drip(b"HTTP/1.1 200 OK\r\n" * 100, seconds=0.2),
        drip(b"x" * 1000, seconds=0.2, first=b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"),
        drip(b"x" * 1000, seconds=0.2, first=CHUNKED + b"1000\r\n"),
    ],
    ids=["silence", "slow head", "slow body", "slow chunk"],
)
async def test_a_slow_response_ends_at_its_deadline(fetcher, reply):
    async with Hostile({"*": reply}) as site:
        started = time.monotonic()
        error = await failure(fetcher, site.url(), timeout_seconds=3.0)
        assert (error.fault, error.reason) == (Fault.TIMED_OUT, "too slow")
        assert time.monotonic() - started >= 1.5
        await site.hung_up()


async def test_the_deadline_applies_at_any_transfer_rate(fetcher):
    """Fast enough for the minimum rate, but without end."""

    async def lively(connection: Connection) -> None:
        await connection.send(ENDLESS)
        while True:
            await connection.send(b"y" * 1000)
            await asyncio.sleep(0.01)

    async with Hostile({"*": lively}) as site:
        error = await failure(fetcher, site.url(), timeout_seconds=3.0)
        assert (error.fault, error.reason) == (Fault.TIMED_OUT, "timed out")
        await site.hung_up()


async def test_a_deadline_does_not_affect_the_next_request(fetcher):
    async with Hostile({"*": keep(ok(b"x"))}) as site:
        await fetcher.fetch(Request(url=site.url(), timeout_seconds=0.5, body_bytes=10))
        site.replies["*"] = drip(b"y" * 30, seconds=0.03, first=b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n")
        assert (await fetcher.fetch(Request(url=site.url(), timeout_seconds=20))).body == b"y" * 30


async def test_a_connection_that_is_never_established_ends_at_its_deadline(fetcher):
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # The kernel drops new connections once the queue of a listener that accepts none is full.
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        error = await failure(fetcher, f"http://127.0.0.1:{full.getsockname()[1]}/", timeout_seconds=0.5)
        assert (error.fault, error.reason) == (Fault.TIMED_OUT, "timed out")


async def test_a_request_waits_if_no_socket_is_left():
    warned = asyncio.Event()
    fetcher = Fetcher(FetchSettings(allow_networks="127.0.0.0/8"), on_warning=lambda _: warned.set())
    async with Hostile({"*": ok(b"x")}) as site:
        await fetcher.fetch(Request(url=site.url()))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        hoard = [os.open(os.devnull, os.O_RDONLY)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hoard[0] + 1, hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    hoard.append(os.open(os.devnull, os.O_RDONLY))
            fetching = asyncio.create_task(fetcher.fetch(Request(url=site.url())))
            await warned.wait()
            assert not fetching.done()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for file in hoard:
                os.close(file)
        assert (await fetching).status == 200
    await fetcher.close()


async def test_a_tls_handshake_that_stalls_ends_at_its_deadline(fetcher: Fetcher):
    async with Hostile({"*": silent()}) as site:
        started = time.monotonic()
        error = await failure(fetcher, site.url().replace("http:", "https:"), timeout_seconds=1.0)
        assert error.fault == Fault.TIMED_OUT
        assert time.monotonic() - started >= 0.9
        await site.hung_up()
