"""Which cookies are stored and sent: RFC 6265, by its own examples and by those that attackers use."""

from __future__ import annotations

import pytest

from shoal.fetch import cookies
from shoal.urls.canonical import canonical

NOW = 1_700_000_000.0


def _after(url: str, *headers: str, jar: cookies.Jar = (), host_only: bool = False, now: float = NOW) -> cookies.Jar:
    return cookies.received(jar, canonical(url), headers, now, host_only=host_only)


def _sent(jar: cookies.Jar, url: str, now: float = NOW) -> str:
    return cookies.sent(jar, canonical(url), now)


@pytest.mark.parametrize(
    ("set_at", "header", "url", "sent"),
    [
        ("https://a.example/", "sid=1", "https://a.example/x", True),
        ("https://a.example/", "sid=1", "https://b.a.example/x", False),
        ("https://www.a.example/", "sid=1; Domain=a.example", "https://b.a.example/", True),
        ("https://www.a.example/", "sid=1; Domain=.A.EXAMPLE", "https://a.example/", True),
        ("https://www.a.example/", "sid=1; Domain=b.example", "https://www.a.example/", False),
        ("https://www.a.example/", "sid=1; Domain=w.a.example", "https://www.a.example/", False),
        ("https://ww.a.example/", "sid=1; Domain=w.a.example", "https://ww.a.example/", False),
        ("https://a.co.uk/", "sid=1; Domain=co.uk", "https://a.co.uk/", False),
        ("https://a.github.io/", "sid=1; Domain=github.io", "https://b.github.io/", False),
        ("http://127.0.0.1/", "sid=1; Domain=0.0.1", "http://127.0.0.1/", False),
        ("http://127.0.0.1/", "sid=1; Domain=127.0.0.1", "http://127.0.0.1/", True),
        ("http://127.0.0.1:81/", "sid=1", "http://127.0.0.1:82/", True),
        ("http://127.0.0.1/", "sid=1", "http://127.0.0.11/", False),
        ("http://localhost/", "sid=1; Domain=localhost", "http://localhost/", True),
        ("http://localhost/", "sid=1; Domain=localhost", "http://x.localhost/", False),
        ("https://a.example/shop/list?x=/y", "sid=1", "https://a.example/shop/", True),
        ("https://a.example/shop/list", "sid=1", "https://a.example/shopping", False),
        ("https://a.example/shop/list", "sid=1", "https://a.example/", False),
        ("https://a.example/", "sid=1; Path=/a", "https://a.example/a?b", True),
        ("https://a.example/", "sid=1; Path=/a", "https://a.example/ab", False),
        ("https://a.example/x/y", "sid=1; Path=none", "https://a.example/x/z", True),
        ("https://a.example/", "sid=1; Secure", "https://a.example/", True),
        ("https://a.example/", "sid=1; Secure", "http://a.example/", False),
        ("http://a.example/", "sid=1; Secure", "https://a.example/", False),
        ("https://a.example/", "__Secure-sid=1", "https://a.example/", False),
        ("https://a.example/", "__Host-sid=1; Secure; Path=/", "https://a.example/", True),
        ("https://a.example/", "__Host-sid=1; Secure; Path=/; Domain=a.example", "https://a.example/", False),
        ("https://a.example/", "sid=1; Max-Age=60", "https://a.example/", True),
        ("https://a.example/", "sid=1; Max-Age=0", "https://a.example/", False),
        ("https://a.example/", "sid=1; Max-Age=-99999999999999999999", "https://a.example/", False),
        ("https://a.example/", "sid=1; Max-Age=99999999999999999999", "https://a.example/", True),
        ("https://a.example/", "sid=1; Expires=Wed, 01 Jan 2020 00:00:00 GMT", "https://a.example/", False),
        ("https://a.example/", "sid=1; Expires=Tue, 19-Jan-38 03:14:07 GMT", "https://a.example/", True),
        ("https://a.example/", "sid=1; Expires=never", "https://a.example/", True),
        ("https://a.example/", "sid=1; Expires=Wed, 31 Feb 2020 00:00:00 GMT", "https://a.example/", True),
        ("https://a.example/", "sid=1; Max-Age=9; Expires=Wed, 01 Jan 2020 00:00:00 GMT", "https://a.example/", True),
        ("https://a.example/", "sid=" + "x" * 4094, "https://a.example/", False),
        ("https://a.example/", "sid=1\x00", "https://a.example/", False),
        ("https://a.example/", "", "https://a.example/", False),
        ("https://a.example/", "=", "https://a.example/", False),
    ],
)  # fmt: skip
def test_a_cookie_is_sent_only_to_matching_urls(set_at: str, header: str, url: str, sent: bool) -> None:
    assert bool(_sent(_after(set_at, header), url)) is sent


def test_each_cookie_is_sent_once_in_the_order_of_the_standard() -> None:
    jar = _after("https://a.example/x/", "a=1; Path=/", "b=2", "flag", 'c="q r"; HttpOnly')
    assert _sent(jar, "https://a.example/x/y") == 'b=2; flag; c="q r"; a=1'
    jar = _after("https://a.example/", "a=3", jar=jar, now=NOW + 1)
    assert _sent(jar, "https://a.example/") == "a=3"
    jar = _after("https://a.example/", "a=; Expires=Thu, 01 Jan 1970 00:00:00 GMT", jar=jar)
    assert _sent(jar, "https://a.example/") == ""


def test_an_expired_cookie_is_neither_sent_nor_kept() -> None:
    jar = _after("https://a.example/", "a=1; Max-Age=60", "b=2")
    assert _sent(jar, "https://a.example/", NOW + 61) == "b=2"
    assert [cookie.name for cookie in _after("https://a.example/", "c=3", jar=jar, now=NOW + 61)] == ["b", "c"]


def test_a_response_that_changes_nothing_leaves_the_same_jar() -> None:
    jar = _after("https://a.example/", "a=1", "b=2; Max-Age=600")
    assert _after("https://a.example/", "a=1", "b=2; Max-Age=600", jar=jar, now=NOW + 5) is jar
    assert _after("https://a.example/", jar=jar) is jar


def test_a_cookie_jar_per_host_returns_cookies_only_to_the_host_that_set_them() -> None:
    jar = _after("https://www.a.example/", "sid=1; Domain=a.example", host_only=True)
    assert _sent(jar, "https://www.a.example/") == "sid=1"
    assert _sent(jar, "https://b.www.a.example/") == _sent(jar, "https://a.example/") == ""


def test_an_http_response_does_not_replace_a_secure_cookie() -> None:
    jar = _after("https://a.example/", "sid=good; Secure")
    jar = _after("http://a.example/", "sid=bad", jar=jar)
    assert _sent(jar, "https://a.example/") == "sid=good"


def test_a_jar_is_bounded_and_drops_the_oldest_cookies_first() -> None:
    jar: cookies.Jar = ()
    for number in range(300):
        jar = _after("https://a.example/", f"c{number}=1", jar=jar, now=NOW + number)
    assert len(jar) == cookies.MOST_COOKIES
    assert {cookie.name for cookie in jar} == {f"c{number}" for number in range(200, 300)}
    for number in range(60):
        jar = _after("https://a.example/", f"d{number}=" + "x" * 4000, jar=jar, now=NOW + 400 + number)
    assert len(cookies.pack(jar)) <= cookies.MOST_BYTES
    assert jar[-1].name == "d59"


def test_an_invalid_jar_is_read_as_empty() -> None:
    jar = _after("https://a.example/", "a=1")
    assert cookies.unpack(cookies.pack(jar)) == jar
    for data in (b"", b"\xc1", b"\x91\xa1x", cookies.pack(jar)[:-1], b"\x93" * 5000):
        assert cookies.unpack(data) == ()
    broken = cookies.pack((cookies.Cookie("a", "1\r\nX: y", "a.example", True, "/", False, 0.0, NOW),))
    assert cookies.unpack(broken) == ()


def test_cookies_set_by_a_spider_are_for_the_host_of_its_url() -> None:
    jar = cookies.given((), canonical("https://a.example/x/y"), {"tide": "high"}, NOW)
    assert _sent(jar, "https://a.example/z") == "tide=high"
    assert _sent(jar, "https://b.a.example/z") == ""
