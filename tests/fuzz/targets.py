"""What is fuzzed: every parser of bytes from outside, by name. A target returns, or raises an error of Shoal's own."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from shoal.api.pagination import parse_cursor
from shoal.api.problem_details import RequestRefused
from shoal.brokers.address import parse_broker_uri
from shoal.errors import ShoalError
from shoal.frontier import visit_codec
from shoal.listen.bridge import _parse
from shoal.listen.source import MAX_LETTER_BYTES, ReceivedMessage, dead_letter
from shoal.model.crawl_spec import CrawlRequest
from shoal.operations.submit import parse, to_submission
from shoal.parse import charset, ftp_listing, html, meta_refresh, robots_meta, sitemap
from shoal.politeness import robots_parser
from shoal.sinks.files import readers, warc_reader
from shoal.sinks.reader import ReadRequest
from shoal.store.address import parse_address
from shoal.urls import canonical

URL = "https://example.org/a/"
REFUSALS = (ShoalError, RequestRefused)


def _html(data: bytes) -> None:
    html.parse(data, url=URL, content_type="text/html")


def _charset(data: bytes) -> None:
    head, _, body = data.partition(b"\n")
    charset.in_utf8(body, charset.charset(body, head.decode("latin-1")))


def _meta(data: bytes) -> None:
    text = data.decode("latin-1")
    robots_meta.from_headers([text], "shoal")
    robots_meta.from_meta("robots", text, "shoal")
    meta_refresh.refresh_of(text)


def _robots(data: bytes) -> None:
    robots_parser.parse(data, "shoal")


def _sitemap(data: bytes) -> None:
    sitemap.is_sitemap(data)
    sitemap.read(data, url=URL)


def _ftp_listing(data: bytes) -> None:
    ftp_listing.links(data, url="ftp://example.org/")


def _url(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    canonical.resolve(URL, text)
    canonical.resolve_header(URL, data.decode("latin-1"))
    target = canonical.canonical(text)
    assert canonical.canonical(target.url) == target, "the canonical form is its own canonical form"


def _visit(data: bytes) -> None:
    visit_codec.unpack(data, host="example.org", crawl="c", priority=0, number=1)


def _request(data: bytes) -> None:
    request = parse(data)
    if isinstance(request, CrawlRequest):
        to_submission(request)


def _message(data: bytes) -> None:
    message = ReceivedMessage(data, "1", None)
    parsed = _parse(message, ("replies",))
    assert not parsed.reply_to or parsed.reply_to.startswith("replies")
    assert len(dead_letter(message, "why")) <= MAX_LETTER_BYTES


def _address(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for scheme in ("redis", "kafka", "amqp"):
        try:
            parse_broker_uri(f"{scheme}://{text}")
        except ShoalError:
            continue
    parse_address(text)


def _cursor(data: bytes) -> None:
    parse_cursor(data.decode("latin-1"), tuple[int, str], "records", "c")


def _lines(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, rows in (("a.jsonl", readers.jsonl_rows), ("a.csv", readers.csv_rows)):
            path = Path(folder, name)
            path.write_bytes(data)
            try:
                list(rows(path, ReadRequest(None, False, ())))
            except ShoalError:
                continue


def _warc(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.warc")
        path.write_bytes(data)
        list(warc_reader.records(path))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "html": _html, "charset": _charset, "meta": _meta, "robots": _robots, "sitemap": _sitemap,
    "ftp_listing": _ftp_listing, "url": _url, "visit": _visit, "request": _request, "message": _message,
    "address": _address, "cursor": _cursor, "lines": _lines, "warc": _warc,
}  # fmt: skip

# Where mutation starts: one input or more of each kind.
SEEDS: dict[str, tuple[bytes, ...]] = {
    "html": (b"<base href=/x><meta charset=utf-8><title>a</title><a href='b?c#d' rel=nofollow>t</a><iframe src=e>",),
    "charset": (b"text/html; charset=shift_jis\n<meta http-equiv=content-type content='a; charset=big5'>\xff\xfe",),
    "meta": (b"shoal: noindex, nofollow, unavailable_after: 25 Jun 2030 15:00:00 PST", b"0; url='/next'"),
    "robots": (b"User-agent: shoal\nDisallow: /a*$\nAllow: /\nCrawl-delay: 2\nSitemap: https://example.org/s.xml\n",),
    "sitemap": (
        b"<?xml version='1.0'?><urlset xmlns='x'><url><loc>https://example.org/?a&amp;b</loc></url></urlset>",
        b"<!DOCTYPE urlset [<!ATTLIST url a CDATA 'x'>]><urlset><url/></urlset>",
        b"<feed><entry><link href='/a'/></entry></feed>", b"https://example.org/\n",
    ),
    "ftp_listing": (b"drwxr-xr-x 2 u g 4096 Jan 1 2020 dir\r\ntype=file;size=1; name\r\n01-01-20 10:00AM <DIR> x\r\n",),
    "url": (b"HTTP://user:p%40@ex\xc3\xa4mple.org:80/a/../b;c?d=%3d&e#f", b"//[::1]:8080/%zz"),
    "visit": (b"\x00\x01/path?q", b"\x08\x00\x05\x94\xa3GET\x80\xc4\x00\x80/"),
    "request": (
        b'{"seeds":["https://example.org/"],"name":"a","scope":"domain","domains":["a.org"],"allow":["a+"],'
        b'"headers":{"X":"1"},"user_agent":"Bot/1","attributes":{"a":[1]},"notify":"https://a.org/"}',
        b'{"url":"http://a.org/","appid":"a","crawlid":"b","maxdepth":1,"allowed_domains":["a.org"],"priority":5}',
    ),
    "message": (
        b'{"action":"info","appid":"a","uuid":"b","crawlid":"c","reply":"replies-x"}',
        b'{"stats":"queue","appid":"a","uuid":"b"}',
        b'{"action":"domain-update","appid":"a","uuid":"b","domain":"d","hits":1,"window":1}',
    ),
    "address": (b"user:p%40@host:6379/0/name?stream&maxlen=5", b"redis+sentinel://a:1,b:2/0?master=m"),
    "cursor": (b"AAAA_-",),
    "lines": (b'{"crawl":"c","url":"u","status":200}\n', b"crawl,url,status\nc,u,200\n"),
    "warc": (b"WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:x>\r\nContent-Length: 5\r\n\r\nHTTP/\r\n\r\n",),
}  # fmt: skip


def run(name: str, data: bytes) -> None:
    """Give one input to a target. Anything but a return or an error of Shoal's own is a defect."""
    with contextlib.suppress(*REFUSALS):
        TARGETS[name](data)
