"""What is fuzzed: every parser of bytes from outside, by name. A target returns, or raises an error of Shoal's own."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from shoal.api.handlers.indexnow import IndexNowReport
from shoal.api.pagination import parse_cursor
from shoal.api.problem_details import RequestRefused
from shoal.brokers.address import parse_broker_uri
from shoal.errors import ShoalError
from shoal.fetch import cookies
from shoal.fetch.address_guard import AddressGuard
from shoal.fetch.response_cache import ResponseCache
from shoal.fetch.transfer import Transfer, framed_twice
from shoal.frontier import visit_codec
from shoal.listen.bridge import _parse
from shoal.listen.source import MAX_LETTER_BYTES, ReceivedMessage, dead_letter
from shoal.model.crawl_request import CrawlRequest
from shoal.model.revisit_schedule import revisit_schedule
from shoal.operations import indexnow, warc_import
from shoal.operations.submit import parse, to_submission
from shoal.operations.time_windows import time_windows_of
from shoal.parse import charset, dates, ftp_listing, html, meta_refresh, robots_meta, sitemap
from shoal.politeness import delay, robots_parser
from shoal.settings import FetchSettings
from shoal.settings.loading import load
from shoal.sinks.files import readers, warc_reader
from shoal.sinks.reader import ReadRequest
from shoal.sinks.registry import parse_output
from shoal.spider import forms
from shoal.store.address import parse_address
from shoal.urls import canonical
from shoal.urls.scope import Scope

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
    sitemap.read(data, url=URL, dates=True)


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


def _cookies(data: bytes) -> None:
    target = canonical.canonical(URL)
    jar = cookies.received((), target, data.decode("latin-1").split("\n"), 1_700_000_000.0)
    assert len(jar) <= cookies.MOST_COOKIES
    assert cookies.unpack(cookies.pack(jar)) == jar
    assert not {"\r", "\n", "\0"} & {*cookies.sent(jar, target, 1_700_000_000.0)}
    cookies.unpack(data)


def _form(data: bytes) -> None:
    form = forms.read(html.tree_of(html.markup_of(data, "text/html")), "form", url=URL, charset="utf-8", absolute=str)
    form.filled({"a": "1"}).content()


def _warc(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.warc")
        path.write_bytes(data)
        list(warc_reader.records(path))


def _warc_pages(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.warc")
        path.write_bytes(data)
        list(warc_import.pages(path, None))


@functools.cache
def _transfer() -> Transfer:
    return Transfer(FetchSettings(), AddressGuard(""), ("", ""))


def _headers(data: bytes) -> None:
    transfer = _transfer()
    transfer.clear()
    for line in data.splitlines(keepends=True):
        if transfer._take_head(line) is not None:
            break
    headers = transfer.read_head()
    framed_twice(headers)
    for name, value in headers:
        assert name == name.lower().strip()
        # libcurl refuses a bare CR itself.
        assert "\n" not in name + value
        seconds = delay.retry_after_seconds(value, now=1_700_000_000.0)
        assert seconds is None or 0 <= seconds <= delay.MAX_RETRY_AFTER_SECONDS


def _pattern(data: bytes) -> None:
    allow, _, deny = data.decode("utf-8", "replace").partition("\n")
    target = canonical.canonical(URL)
    Scope("prefix", [target], allow=[allow], deny=[deny], deny_extensions=[deny[:10]]).verdict(target)


def _settings(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "shoal.toml")
        path.write_bytes(data)
        load(file=path, environ={})


def _output(data: bytes) -> None:
    parse_output(data.decode("utf-8", "replace"))


def _schedule(data: bytes) -> None:
    every, _, budget = data.decode("utf-8", "replace").partition("\n")
    time_windows_of(budget)
    revisit_schedule(every, budget)


def _date(data: bytes) -> None:
    assert dates.timestamp(data.decode("latin-1")) >= 0


def _indexnow(data: bytes) -> None:
    try:
        report = msgspec.json.decode(data, type=IndexNowReport)
    except (msgspec.MsgspecError, UnicodeError):
        return
    with contextlib.suppress(indexnow.Refused):
        targets = indexnow._targets(report.url_list, report.host)
        file = indexnow._key_file(targets, report.key, report.key_location)
        assert file.origin in {target.origin for target in targets}


def _cached(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cache = ResponseCache(folder)
        path = cache._path(URL)
        path.parent.mkdir()
        path.write_bytes(data)
        cache.read(URL)


def _scrapy_request(data: bytes) -> None:
    from scrapy import Spider

    from shoal.scrapy import codec

    codec.unpack(data, known=(URL, "GET", b""), spider=Spider(name="a"))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "html": _html, "charset": _charset, "meta": _meta, "robots": _robots, "sitemap": _sitemap,
    "ftp_listing": _ftp_listing, "url": _url, "visit": _visit, "request": _request, "message": _message,
    "address": _address, "cursor": _cursor, "lines": _lines, "warc": _warc,
    "cookies": _cookies, "form": _form, "warc_pages": _warc_pages, "headers": _headers, "pattern": _pattern,
    "settings": _settings, "output": _output, "schedule": _schedule,
    "date": _date, "indexnow": _indexnow, "cached": _cached, "scrapy_request": _scrapy_request,
}  # fmt: skip

# More than int() accepts.
_DIGITS = b"1" * 5000

# Where mutation starts: one input or more of each kind.
_SCRAPY = (
    b"\xdc\x00\x11\x01\xa0\xa0\x82\xa1a\xc7\x03\x02\x92\x01\x02\xa1d\x92\xcb?\xf8" + bytes(6) + b"\xc0\x81\xc4\x01A"
    b"\x91\xc4\x01b\x80\x00\xc2\xb5https://example.org/b\xa4POST\xc4\x01x\x81\xa1c\xa1d\xa5utf-8\x90\xa0\x80\x90"
)
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
    "address": (b"user:p%40@host:6379/0/name?stream&maxlen=5", b"redis+sentinel://a:1,b:2/0?master=m",
                b"redis://a:" + _DIGITS, b"redis://a/" + _DIGITS, b"host:6379/0/name?stream&maxlen=" + _DIGITS,
                b"host:6379/" + _DIGITS + b"/name"),
    "cursor": (b"AAAA_-",),
    "lines": (b'{"crawl":"c","url":"u","status":200}\n', b"crawl,url,status\nc,u,200\n"),
    "cookies": (
        b"a=1; Path=/a; Domain=example.org; Expires=Tue, 19-Jan-38 03:14:07 GMT; Secure\n__Host-b=; Max-Age=5",
    ),
    "form": (
        b"<form method=post enctype=multipart/form-data accept-charset=latin1><fieldset disabled><legend><input name=a>"
        b"</fieldset><select name=b multiple><option selected>x</select><textarea name=c>\n1</textarea><button name=d>",
        b"<table><form id=f><tr><td><input type=checkbox name=a checked></table><input form=f name=b type=image>",
    ),
    "warc": (b"WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:x>\r\nContent-Length: 5\r\n\r\nHTTP/\r\n\r\n",
             b"WARC/1.1\r\nContent-Length: " + _DIGITS + b"\r\n\r\n"),
    "warc_pages": (
        b"WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:x>\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
        b"WARC-Target-URI: http://a.org/\r\nContent-Type: application/http\r\nContent-Length: 76\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 16\r\n\r\n<a href=/b>c</a>\r\n\r\n",
    ),
    "headers": (
        b"HTTP/1.1 503 Busy\r\nRetry-After: Tue, 19 Jan 2038 03:14:07 GMT\r\nContent-Length: 1\r\n"
        b"Transfer-Encoding: chunked\r\n folded\r\nContent-Encoding: gzip, br\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 A\r\nRetry-After: 120\r\n\r\n",
        b"HTTP/1.1 429 A\r\nRetry-After: " + _DIGITS + b"\r\n\r\n",
    ),
    "pattern": (b"^https?://[a-z]+[.]org/(a|b)*$\n\\.(jpg|png)$", b"((a{1,100}){1,100}\n(?i)\\pL+"),
    "settings": (
        b'[store]\nurl = "redis://a:1"\n[fetch]\nallow_networks = "10.0.0.0/8"\n[spiders]\na = "b.py:C"\n[tokens]\n'
        b'x = "read sha256:00"\n',
        b"[api]\nport = " + _DIGITS + b"\nrate = 1e400\n",
        b"[api]\nport = " + b"[" * 5000,
    ),
    "output": (
        b"s3://key:secret@host:9000/bucket/a.parquet?region=x", b"postgresql://u:p@h:5432/db?table=t&sslmode=require",
        b"mysql://u@h/db?table=a", b"sqlite:a.db", b"kafka://a:1,b:2/topic", b"-", b"a.csv", b"mysql://h:" + _DIGITS,
    ),
    "date": (b"2026-11-17T06:00:00.5+01:00", b"Tue, 17 Nov 2026 06:00:00 GMT"),
    "indexnow": (
        b'{"host":"a.org","key":"12345678","keyLocation":"https://a.org/k.txt","urlList":["https://a.org/b","http://a.org/c"]}',
    ),
    "cached": (
        b"\x99\xb6https://example.org/a/\xcc\xc8\x91\x92\xa1a\xa1b\xc4\x01x\xa0\xa0\x01\xcb" + bytes(8) + b"\x90",
    ),
    "scrapy_request": (_SCRAPY, _SCRAPY.replace(b"utf-8", b"[tf-8"), _SCRAPY.replace(b"\xc7\x03\x02", b"\xc7\x03\x0b")),
    "schedule": (b"1h-30d\n1000/h", b"1d\n", b"1d\n22:00-06:00,12:00-13:00 Europe/Berlin"),
}  # fmt: skip


def run(name: str, data: bytes) -> None:
    """Give one input to a target. Anything but a return or an error of Shoal's own is a defect."""
    with contextlib.suppress(*REFUSALS):
        TARGETS[name](data)
