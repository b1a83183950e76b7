"""The records of a WARC file (ISO 28500:2017, WARC 1.1), each one a gzip member.

A response is written with its decoded body and the length of that body; the server's headers on encoding and length are
kept as X-Archive-Orig-*. The same response always gives the same bytes, including its ids.
"""

from __future__ import annotations

import datetime
import hashlib
import http
import re
import uuid
import zlib
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from shoal.model.record import Capture
from shoal.model.response import Response
from shoal.version import __version__

# A page of 15 KB takes 214 us at level 3, and 345 us at level 6 (which compresses to 93 % of the size).
GZIP_LEVEL = 3

_ORIGINAL = {name: f"x-archive-orig-{name}" for name in ("content-encoding", "transfer-encoding", "content-length")}
# Headers of requests that never carry a secret. Any other header may: X-Api-Key, Private-Token and the like.
_PUBLIC = frozenset(
    {"accept", "accept-encoding", "accept-language", "content-length", "content-type", "host", "if-modified-since",
     "if-none-match", "range", "referer", "user-agent"}
)  # fmt: skip
_PHRASES = {status.value: status.phrase for status in http.HTTPStatus}
_PROFILE = "http://netpreserve.org/warc/1.1/revisit/"
_BREAKS = re.compile(r"[\0\r\n]+")
_UNSAFE = re.compile(r"[^!-~]")
_FORMAT = "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"


class ArchivedPayload(NamedTuple):
    """A payload that is in the archive, for revisit records to refer to."""

    digest: bytes
    id: str
    date: str


def records_of(capture: Capture, before: ArchivedPayload | None) -> tuple[bytes, ArchivedPayload | None]:
    """The records of one response, and its payload for later revisits; None if there is no payload to refer to.

    `before` is the payload that the archive has for this URL. A response with the same body is a revisit.
    """
    page = capture.page
    http_like = page.url.startswith(("http:", "https:"))
    date = _date(page.started_at)
    target = _UNSAFE.sub(lambda match: quote(match[0], errors="replace"), page.url)
    payload = hashlib.sha256(page.body)
    about = [("WARC-Date", date), ("WARC-Target-URI", target)]
    response = [*about, ("WARC-IP-Address", page.address)] if page.address else about
    head = _response_head(capture) if http_like else b""
    ids = [_id(kind, capture) for kind in ("response", "request", "metadata")]
    kept: ArchivedPayload | None = None
    more: list[tuple[str, str]] = []
    body = b""
    if http_like and page.status == 304:
        kind = "revisit"
        more = [("WARC-Profile", _PROFILE + "server-not-modified"), *_refers(before, target)]
    elif http_like and page.body and before is not None and before.digest == payload.digest():
        kind, kept = "revisit", before
        more = [("WARC-Profile", _PROFILE + "identical-payload-digest"), *_refers(before, target)]
    else:
        kind, body = "response" if http_like else "resource", page.body
        more = [("WARC-Payload-Digest", _shown(payload.digest()))]
        kept = ArchivedPayload(payload.digest(), ids[0], date) if http_like and page.body else None
    content_type = _HTTP_RESPONSE if http_like else _line(page.header("content-type")) or "application/octet-stream"
    written = [_record(kind, ids[0], [*response, *_protocol(page), *more], content_type, head, body)]
    concurrent = [*about, ("WARC-Concurrent-To", f"<urn:uuid:{ids[0]}>")]
    if http_like:
        written.append(
            _record("request", ids[1], concurrent, _HTTP_REQUEST, _request_head(capture), capture.request_body)
        )
    fields = f"fetchTimeMs: {page.timings.total * 1000:.0f}\r\nbytesReceived: {page.bytes_received}\r\n"
    written.append(_record("metadata", ids[2], concurrent, _FIELDS, fields.encode()))
    return b"".join(written), kept


def warcinfo(name: str, crawl: str, made_at: float) -> bytes:
    """The first record of the file of this name."""
    fields = (
        f"software: Shoal/{__version__}\r\nformat: WARC File Format 1.1\r\n"
        f"conformsTo: {_FORMAT}\r\nisPartOf: {_line(crawl)}\r\n"
    )
    about = [("WARC-Date", _date(made_at)), ("WARC-Filename", name)]
    return _record("warcinfo", str(uuid.uuid5(uuid.NAMESPACE_URL, name)), about, _FIELDS, _bytes(fields))


_HTTP_RESPONSE = "application/http; msgtype=response"
_HTTP_REQUEST = "application/http; msgtype=request"
_FIELDS = "application/warc-fields"


def _record(
    kind: str, record_id: str, headers: list[tuple[str, str]], content_type: str, head: bytes, body: bytes = b""
) -> bytes:
    block = hashlib.sha256(head)
    block.update(body)
    lines = [
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{record_id}>\r\n",
        *(f"{name}: {value}\r\n" for name, value in headers),
        f"WARC-Block-Digest: {_shown(block.digest())}\r\nContent-Type: {content_type}\r\n",
        f"Content-Length: {len(head) + len(body)}\r\n\r\n",
    ]
    pack = zlib.compressobj(GZIP_LEVEL, wbits=16 + zlib.MAX_WBITS)
    first = pack.compress(b"".join((_bytes("".join(lines)), head)))
    return b"".join((first, pack.compress(body), pack.compress(b"\r\n\r\n"), pack.flush()))


def _response_head(capture: Capture) -> bytes:
    page = capture.page
    lines = [f"HTTP/{_version(page)} {page.status} {_PHRASES.get(page.status, '')}"]
    if page.status == 304 or capture.method == "HEAD":
        # There is no body: the headers that describe it are kept unchanged.
        lines += [f"{name}: {value}" for name, value in page.headers]
    else:
        length, has_length = str(len(page.body)), False
        for name, value in page.headers:
            if name in _ORIGINAL:
                if name == "content-length" and value == length and not has_length:
                    has_length = True
                else:
                    name = _ORIGINAL[name]
            lines.append(f"{name}: {value}")
        if not has_length:
            lines.append(f"content-length: {length}")
    return _head(lines)


def _request_head(capture: Capture) -> bytes:
    parts = urlsplit(capture.page.url)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    lines = [f"{capture.method} {path} HTTP/{_version(capture.page)}"]
    names = {name.lower() for name, _ in capture.request_headers}
    if "host" not in names:
        lines.append(f"host: {parts.netloc.rpartition('@')[2]}")
    # Archives are shared with others, so they must not contain credentials.
    lines += [f"{name}: {value if name.lower() in _PUBLIC else '***'}" for name, value in capture.request_headers]
    if capture.request_body and "content-length" not in names:
        lines.append(f"content-length: {len(capture.request_body)}")
    return _head(lines)


def _head(lines: list[str]) -> bytes:
    return _bytes("\r\n".join(map(_line, lines)) + "\r\n\r\n")


def _line(text: str) -> str:
    """A header line without line breaks inside it."""
    return _BREAKS.sub(" ", text) if "\n" in text or "\r" in text or "\0" in text else text


def _bytes(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode(errors="replace")


def _version(page: Response) -> str:
    # A message is written in the text form of HTTP/1; WARC-Protocol names a later version.
    return page.http_version if page.http_version.startswith("1.") else "1.1"


def _protocol(page: Response) -> list[tuple[str, str]]:
    return [("WARC-Protocol", f"h{page.http_version}")] if page.http_version in ("2", "3") else []


def _refers(before: ArchivedPayload | None, target: str) -> list[tuple[str, str]]:
    if before is None:
        return []
    return [
        ("WARC-Refers-To", f"<urn:uuid:{before.id}>"),
        ("WARC-Refers-To-Target-URI", target),
        ("WARC-Refers-To-Date", before.date),
        ("WARC-Payload-Digest", _shown(before.digest)),
    ]


def _id(kind: str, capture: Capture) -> str:
    """The id of a record: always the same for the same response. A URL is fetched by one worker at a time."""
    name = f"{kind} {capture.crawl} {capture.page.started_at:.6f} {capture.method} {capture.page.url}"
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name.encode(errors="replace").decode()))


def _date(at: float) -> str:
    time = datetime.datetime.fromtimestamp(at, datetime.UTC)
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _shown(digest: bytes) -> str:
    # In hex, like the names of stored bodies: base32 of 32 bytes ends in =, which is not allowed in a token.
    return f"sha256:{digest.hex()}"
