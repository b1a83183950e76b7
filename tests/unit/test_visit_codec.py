"""Entries: a visit as bytes and back, and bytes that are not a visit."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidVisit, StoreCorrupt
from shoal.frontier import visit_codec
from shoal.frontier.visit_codec import MAX_EXTENSION_BYTES
from shoal.model.visit import FOUND, Visit
from shoal.urls.canonical import canonical

_PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.text(), st.binary()
)
META = st.dictionaries(
    st.text(max_size=10),
    st.recursive(_PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)),
    max_size=4,
)
# Characters that no header value may have.
LINES = dict.fromkeys(map(ord, "\r\n\0"))
URLS = st.sampled_from(
    ["http://a.example/", "https://a.example/p?q=1", "ftp://a.example/f", "http://u:p@a.example/", "http://a.example./x",
     "https://[::1]:8443/", "http://a.example:443/"]
)  # fmt: skip


@given(
    url=URLS,
    depth=st.integers(0, 2**53 - 1),
    found=st.sampled_from(FOUND),
    method=st.sampled_from(["GET", "POST", "HEAD", ""]),
    headers=st.dictionaries(
        st.sampled_from(["X-A", "X-B", "Referer", "accept"]),
        st.text(max_size=10).map(lambda text: text.translate(LINES)),
    ),
    body=st.binary(max_size=50),
    meta=META,
)
def test_a_visit_survives_a_round_trip_through_its_entry(
    url: str, depth: int, found: str, method: str, headers: dict[str, str], body: bytes, meta: dict[str, Any]
) -> None:
    visit = Visit(url=url, depth=depth, found=found, method=method, headers=headers, body=body, meta=meta)
    target = canonical(url)
    packed = visit_codec.pack(target, visit)
    out = visit_codec.unpack(packed, host=target.host, crawl="c", priority=7, number=3)
    assert out == Visit(
        url=url, depth=depth, found=found, method=method, headers=headers, body=body, meta=meta, crawl="c", priority=7,
        number=3,
    )  # fmt: skip


def test_an_ordinary_get_takes_two_bytes_more_than_its_path() -> None:
    target = canonical("http://a.example/some/path?q")
    assert visit_codec.pack(target, Visit(url=target.url, depth=127)) == b"\x00\x7f/some/path?q"
    assert visit_codec.plain(target, 127, "link") == b"\x00\x7f/some/path?q"
    assert len(visit_codec.pack(target, Visit(url=target.url, depth=128))) == len("/some/path?q") + 3


def test_attempts_that_scripts_write_are_read() -> None:
    visit = visit_codec.unpack(b"\x04\x01\x02\x03\x05/x", host="a.example", crawl="c", priority=0, number=1)
    assert (visit.retries, visit.expiries, visit.blames, visit.depth) == (1, 2, 3, 5)
    assert visit.url == "http://a.example/x"


@given(st.binary(max_size=80))
def test_any_bytes_are_a_visit_or_reported_as_corrupt(data: bytes) -> None:
    with contextlib.suppress(StoreCorrupt):
        visit = visit_codec.unpack(data, host="a.example", crawl="c", priority=0, number=1)
        assert isinstance(visit.url, str)
        assert visit.found in FOUND


# Each of them starts as an entry does, and then breaks one rule of the form.
_HIGH = st.binary(min_size=9, max_size=20).map(lambda many: bytes(byte | 128 for byte in many))
_NO_ENTRIES = st.one_of(
    st.just(b""),
    st.builds(lambda attempts: b"\x04" + attempts, st.binary(max_size=2)),
    st.builds(lambda depth, rest: b"\x00" + depth + rest, _HIGH, st.binary(max_size=9)),
    st.builds(lambda path: b"\x00\x00/" + path + b"\xff", st.binary(max_size=9)),
)


@given(_NO_ENTRIES)
def test_bytes_that_are_not_an_entry_are_reported_as_corrupt(data: bytes) -> None:
    with pytest.raises(StoreCorrupt, match=r"host a\.example"):
        visit_codec.unpack(data, host="a.example", crawl="c", priority=0, number=1)


_NO_EXTENSIONS = st.one_of(
    st.one_of(st.integers(0, 2**32), st.text(max_size=9), st.dictionaries(st.text(max_size=3), st.text(max_size=3)))
    .map(msgspec.msgpack.encode),
    st.lists(st.integers(0, 9), min_size=1, max_size=5).map(msgspec.msgpack.encode),
    st.just(b"\xc1"),
)  # fmt: skip


@given(_NO_EXTENSIONS.filter(lambda extension: len(extension) < 128), st.sampled_from([b"", b"/", b"/path"]))
def test_an_invalid_extension_is_reported_as_corrupt(extension: bytes, rest: bytes) -> None:
    entry = b"\x08\x00" + bytes((len(extension),)) + extension + rest
    with pytest.raises(StoreCorrupt, match="host a "):
        visit_codec.unpack(entry, host="a", crawl="c", priority=0, number=1)


@given(st.binary(max_size=50), st.data())
def test_a_truncated_extension_is_reported_as_corrupt(body: bytes, data: st.DataObject) -> None:
    target = canonical("http://a/")
    entry = visit_codec.pack(target, Visit(url=target.url, method="POST", body=body))
    end = data.draw(st.integers(1, len(entry) - len(target.rest) - 1))
    with pytest.raises(StoreCorrupt, match="host a "):
        visit_codec.unpack(entry[:end], host="a", crawl="c", priority=0, number=1)


@given(st.integers(1, 127))
def test_an_extension_shorter_than_its_length_is_reported_as_corrupt(more: int) -> None:
    # What is there is whole: an array without fields.
    with pytest.raises(StoreCorrupt, match="host a "):
        visit_codec.unpack(b"\x08\x00" + bytes((1 + more,)) + b"\x90", host="a", crawl="c", priority=0, number=1)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", b"\x04", b"\x04\x01\x02", b"\x00\xff\xff", b"\x00" + b"\x80" * 20 + b"\x01", b"\x08\x00",
     b"\x08\x00\x05", b"\x08\x00\x01\xc1", b"\x00\x00\xff\xfe", b"\x08\x00\x02\x91\xc0", b"\x08\x00\x03\x92\xa1x\x90"],
)  # fmt: skip
def test_a_truncated_entry_is_reported_as_corrupt(data: bytes) -> None:
    with pytest.raises(StoreCorrupt, match=r"host a\.example"):
        visit_codec.unpack(data, host="a.example", crawl="c", priority=0, number=1)


def test_deeply_nested_metadata_is_reported_as_corrupt() -> None:
    extension = b"\x94\xa3GET\x80\xc4\x00\x81\xa1a" + b"\x91" * 30_000 + b"\xc0"
    length = visit_codec._varint(len(extension))
    with pytest.raises(StoreCorrupt):
        visit_codec.unpack(b"\x08\x00" + length + extension + b"/", host="a", crawl="c", priority=0, number=1)


@pytest.mark.parametrize(
    "bad",
    [{"meta": {"a": object()}}, {"meta": {"a": {1: object()}}}, {"headers": {"a": 1}}, {"body": "text"}, {"method": 5},
     {"found": "elsewhere"}, {"body": bytes(MAX_EXTENSION_BYTES)}],
)  # fmt: skip
def test_a_visit_that_cannot_be_stored_is_invalid(bad: dict[str, Any]) -> None:
    target = canonical("http://a.example/")
    with pytest.raises(InvalidVisit):
        visit_codec.pack(target, Visit(url=target.url, **bad))


def test_a_visit_whose_metadata_contains_itself_is_invalid() -> None:
    meta: dict[str, Any] = {}
    meta["self"] = meta
    target = canonical("http://a.example/")
    with pytest.raises(InvalidVisit, match="cannot be stored"):
        visit_codec.pack(target, Visit(url=target.url, meta=meta))


@given(META)
def test_any_metadata_is_stored_or_refused_as_an_invalid_visit(meta: dict[str, Any]) -> None:
    target = canonical("http://a.example/")
    with contextlib.suppress(InvalidVisit):
        packed = visit_codec.pack(target, Visit(url=target.url, meta=meta))
        assert visit_codec.unpack(packed, host="a.example", crawl="", priority=0, number=0).meta == meta
