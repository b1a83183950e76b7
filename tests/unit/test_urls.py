"""URLs: one canonical form for each, its host for politeness, and its 64-bit fingerprint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ada_url
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidUrl
from shoal.urls.canonical import MAX_URL_BYTES, canonical, rebuild
from shoal.urls.fingerprint import MAX_SHARDS, bits_of, fingerprint, host_bits, shard_of

# The vectors of the URL standard, beside the checkout where they are kept.
VECTORS = Path(__file__).parents[3] / "shared" / "data" / "wpt" / "url" / "resources" / "urltestdata.json"
SCHEMES = ("http", "https", "ftp")


def _vectors() -> list[dict[str, Any]]:
    if not VECTORS.exists():
        pytest.skip("the WHATWG URL vectors are absent: put urltestdata.json of web-platform-tests beside the checkout")
    return [case for case in json.loads(VECTORS.read_text()) if isinstance(case, dict) and case.get("base") is None]


def _visited(case: dict[str, Any]) -> bool:
    return case.get("protocol", "").rstrip(":") in SCHEMES


def test_urls_are_parsed_by_the_standard() -> None:
    cases = [case for case in _vectors() if not case.get("failure") and _visited(case)]
    assert len(cases) > 130
    wrong = []
    for case in cases:
        url, expected = case["input"], case["href"].partition("#")[0]
        # No URL of Shoal may contain NUL, and a name of dots is not a host, though the standard accepts both.
        if "\0" in url or url in ("http://./", "http://../"):
            continue
        try:
            result = canonical(url).url
        except InvalidUrl as error:
            result = str(error)
        if result != expected:
            wrong.append((url, expected, result))
    assert not wrong


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/", "http://a.example/b/c.html?d=1&e", "http://127.0.0.1:8080/b", "http://127.1/b",
        "http://0x7f.0.0.1/b", "http://1.2/b", "http://a.example:80/b", "https://a.example:443/b", "http://A.example/b",
        "HTTP://a.example/b", "http://a.example/b/../c", "http://a.example/./b", "http://a.example/b/..",
        "http://a.example/.../b", "http://a.example//b", "http://a.example/b#c", "http://a.example/b?", "http://x/b",
        "http://xn--mnchen-3ya.example/b", "http://xn--a.example/b", "http://user@a.example/b", "http://[::1]/b",
        "http://[0::1]/b", "ftp://a/b/c", "ftp://a/../c", "http://a.example/b\n", "http://a.example/b ", "http:///b/c",
        "http:/a.example/b", "http://a.example\\b/c", "http://a.example/b\\..\\c", "https://a..example/b",
    ],
)  # fmt: skip
def test_a_canonical_url_is_not_confused_with_another(url: str) -> None:
    for _ in range(2):
        try:
            known = canonical(url).url
        except InvalidUrl:
            known = ""
        try:
            expected = ada_url.normalize_url(url).partition("#")[0]
        except ValueError:
            expected = ""
        assert known == expected


def test_urls_that_the_standard_refuses_are_refused() -> None:
    cases = [case for case in _vectors() if case.get("failure")]
    assert len(cases) > 100
    accepted = []
    for case in cases:
        try:
            accepted.append((case["input"], canonical(case["input"]).url))
        except InvalidUrl:
            continue
    assert not accepted


def test_other_schemes_are_refused() -> None:
    for case in _vectors():
        if not case.get("failure") and not _visited(case):
            with pytest.raises(InvalidUrl):
                canonical(case["input"])


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://a.example/", "a.example"),
        ("https://a.example/", "a.example"),
        ("http://a.example:80/", "a.example"),
        ("https://a.example:443/", "a.example"),
        ("http://a.example:443/", "a.example"),
        ("https://a.example:80/", "a.example"),
        ("http://A.Example./", "a.example"),
        ("http://a.example.:8080/", "a.example:8080"),
        ("http://a.example:8080/", "a.example:8080"),
        ("https://a.example:8443/", "a.example:8443"),
        ("http://user:word@a.example/", "a.example"),
        ("http://user@a.example:8080/", "a.example:8080"),
        ("http://127.1/", "127.0.0.1"),
        ("http://0x7f.1:80/", "127.0.0.1"),
        ("http://[::1]/", "[::1]"),
        ("http://[2001:DB8:0::1]:8080/", "[2001:db8::1]:8080"),
        ("https://[2001:db8::80]/", "[2001:db8::80]"),
        ("http://[2001:db8::1]:443/", "[2001:db8::1]"),
        ("ftp://a.example/", "a.example"),
        ("ftp://a.example:21/", "a.example"),
        ("ftp://a.example:2121/", "a.example:2121"),
        ("http://bücher.example/", "xn--bcher-kva.example"),
        ("http://a.example?q", "a.example"),
    ],
)
def test_a_host_is_a_name_and_its_port_unless_it_is_the_default_port(url: str, host: str) -> None:
    assert canonical(url).host == host


@pytest.mark.parametrize(
    "url",
    ["http://a.example/b?q=1", "https://a.example/", "ftp://a.example/x", "http://a.example:8080/", "http://[::1]/p"],
)
def test_an_ordinary_url_is_rebuilt_from_its_parts(url: str) -> None:
    target = canonical(url)
    assert not target.whole
    assert rebuild(target.scheme, target.host, target.rest) == target.url == url


@pytest.mark.parametrize("url", ["http://u@a.example/x", "http://a.example./x", "http://a.example:443/x"])
def test_a_url_that_cannot_be_rebuilt_from_its_host_is_stored_whole(url: str) -> None:
    target = canonical(url)
    assert target.whole
    assert target.rest == target.url == url


def test_a_fragment_is_dropped() -> None:
    assert canonical("http://a.example/b#c?d").url == "http://a.example/b"
    assert canonical("http://a.example/b%23c").url == "http://a.example/b%23c"


def test_canonicalizing_a_canonical_url_does_not_change_it() -> None:
    for url in ("http://a.example/b%20c?d=e%7C", "https://a.example//x/?", "http://a.example/%C3%BC"):
        assert canonical(canonical(url).url) == canonical(url)


def test_a_url_has_a_maximum_length() -> None:
    longest = "http://a.example/" + "x" * (MAX_URL_BYTES - 17)
    assert canonical(longest).url == longest
    with pytest.raises(InvalidUrl, match="8193 characters"):
        canonical(longest + "x")


@pytest.mark.parametrize("url", ["http://./", "http://../x", "http://.:8080/", f"http://{'a.' * 150}example/"])
def test_a_url_without_a_usable_host_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl):
        canonical(url)


@given(st.text(max_size=60))
def test_any_text_is_a_url_or_a_named_error(text: str) -> None:
    for url in (text, "http://" + text, "http://a.example/" + text):
        try:
            target = canonical(url)
        except InvalidUrl:
            continue
        assert target.url.startswith(("http://", "https://", "ftp://"))
        assert canonical(target.url) == target
        assert target.url.isascii()


@given(st.integers(0, 1023), st.text(max_size=30), st.integers(0, 2**53), st.binary(max_size=9))
def test_a_fingerprint_is_a_signed_number_that_names_its_shard(bits: int, url: str, seed: int, body: bytes) -> None:
    value = fingerprint(bits, url, seed, "POST" if body else "GET", body)
    assert -(2**63) <= value < 2**63
    assert bits_of(value) == bits


def test_fingerprints_use_their_whole_range() -> None:
    assert fingerprint(1023, "x", 0) < 0
    assert fingerprint(512, "x", 0) < 0
    assert fingerprint(511, "x", 0) > 0
    assert fingerprint(0, "x", 0) >= 0


def test_a_fingerprint_depends_on_url_method_body_and_seed() -> None:
    same = fingerprint(5, "http://a.example/", 1)
    assert fingerprint(5, "http://a.example/", 1, "GET", b"") == same
    others = [
        fingerprint(5, "http://a.example/x", 1),
        fingerprint(5, "http://a.example/", 2),
        fingerprint(5, "http://a.example/", 1, "HEAD"),
        fingerprint(5, "http://a.example/", 1, "POST", b"a"),
        fingerprint(5, "http://a.example/", 1, "POST", b"b"),
        fingerprint(5, "http://a.example/", 1, "GET", b"a"),
    ]
    assert len({same, *others}) == 7


def test_hosts_spread_over_shards_of_any_number() -> None:
    hosts = [host_bits(f"h{i}.example") for i in range(5000)]
    assert set(hosts) <= set(range(1024))
    for shards in (1, 3, 16, MAX_SHARDS):
        used = [shard_of(bits, shards) for bits in hosts]
        assert set(used) <= set(range(shards))
        assert max(used.count(shard) for shard in range(min(shards, 16))) < 5000 / shards * 1.5 + 20


def test_a_shard_number_follows_from_the_upper_bits_for_every_count() -> None:
    for bits in range(1024):
        assert shard_of(bits, 16) == shard_of(bits, 32) // 2
