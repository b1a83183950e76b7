"""What is taken out of links, which URLs are traps, and the many that look like one and are not."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.model.crawl_spec import DROPPED_PARAMETERS
from shoal.urls.canonical import canonical, parts_of
from shoal.urls.traps import (
    CALENDAR,
    DEPTH,
    LENGTH,
    MAX_LENGTH,
    MAX_SEGMENTS,
    PARAMETERS,
    PERMUTATION,
    REPETITION,
    SUBDOMAINS,
    DomainHosts,
    Permutations,
    Traps,
)  # fmt: skip

NOW = datetime(2026, 11, 16, tzinfo=UTC).timestamp()


@pytest.fixture
def traps() -> Traps:
    return Traps(drop_parameters=DROPPED_PARAMETERS)


def judged(traps: Traps, url: str, now: float = NOW) -> str:
    return traps.verdict(canonical(url), now=now)


@pytest.mark.parametrize(
    ("url", "clean"),
    [
        ("https://a.example/p?utm_source=x&id=1&UTM_Medium=y", "https://a.example/p?id=1"),
        ("https://a.example/p?fbclid=abc", "https://a.example/p"),
        ("https://a.example/p?id=1&PHPSESSID=0a1b2c", "https://a.example/p?id=1"),
        ("https://a.example/p?ASPSESSIONIDQQ=1&b", "https://a.example/p?b"),
        ("https://a.example/p;jsessionid=0A1B.node1?id=1", "https://a.example/p?id=1"),
        ("https://a.example/a;jsessionid=1/b;JSESSIONID=2", "https://a.example/a/b"),
        ("https://a.example/p;v=1;jsessionid=2;w=3", "https://a.example/p;v=1;w=3"),
        ("https://a.example/p?gclid&id=1", "https://a.example/p?id=1"),
    ],
)
def test_parameters_that_identify_a_visitor_are_dropped(traps, url, clean):
    assert traps.cleaned(url) == clean
    assert traps.cleaned(clean) == clean


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example/",
        "https://a.example/?",
        "https://a.example/p;v=1?b=2&a=1",
        "https://a.example/utm_source=x",
        "https://a.example/p?my_utm_source=x&xfbclid=1&fbclids=2",
        "https://a.example/p?q=fbclid=1",
        "https://a.example/p?return=/a?utm_source=x",
        "https://a.example/p?jsessionids=1",
    ],
)
def test_other_urls_are_not_changed(traps, url):
    assert traps.cleaned(url) == url
    assert Traps().cleaned(url) is url


def test_parameter_names_match_literally_except_for_a_trailing_star():
    traps = Traps(drop_parameters=("a.b", "s*", "*", ""))
    assert traps.cleaned("https://a.example/?a.b=1&axb=2&sid=3&S=4&t=5") == "https://a.example/?axb=2&t=5"


def test_urls_without_end_are_too_long(traps):
    assert judged(traps, "https://a.example/" + "x" * MAX_LENGTH) == LENGTH


def test_paths_without_end_are_too_deep(traps):
    deep = "/".join(f"s{n}" for n in range(MAX_SEGMENTS))
    assert judged(traps, f"https://a.example/{deep}") == ""
    assert judged(traps, f"https://a.example/{deep}/") == ""
    assert judged(traps, f"https://a.example/{deep}/more") == DEPTH
    assert judged(traps, f"https://a.example/{deep}/s0/") == DEPTH
    assert judged(traps, f"https://a.example/p?back={deep}/more/x") == ""


@pytest.mark.parametrize(
    "path",
    [
        "/a/b/a/b/a/b", "/a/b/a/b/a/b/", "/x/y/a/b/a/b/a/b/z", "/a/a/a", "/p/a/a/a/q?x=1", "/a/b/c/a/b/c/a/b/c",
        "/a/x/a/y/a/z/a/w/a", "/en/en/en/", "/a////b",
    ],
)  # fmt: skip
def test_paths_that_repeat_in_a_cycle_are_refused(traps, path):
    assert judged(traps, f"https://a.example{path}") == REPETITION


@pytest.mark.parametrize(
    "path",
    [
        "/a/b/a/b", "/a/a/b", "/a/b/a/b/a", "/2011/11/11/11/", "/tiles/1/1/1.png", "/tiles/1/1/1/", "/en/docs/en/x/en",
        "/web/2020/https://a.example/b/", "/a//b//c", "/src/main/java/org/a/main/java", "/?p=/a/b/a/b/a/b",
        "/wiki/Talk:New_York/New_York/New_York_City",
    ],
)  # fmt: skip
def test_paths_that_only_seem_to_repeat_are_accepted(traps, path):
    assert judged(traps, f"https://a.example{path}") == ""


@pytest.mark.parametrize(
    "path",
    [
        "/calendar/2031/05/", "/events/2031-05", "/2031/05/12/", "/?date=2031-05-17", "/cal?year=2031&month=5",
        "/calendar?m=203105", "/day/20310517", "/calendar/2031/", "/calendar/2031/5", "/kalender/1850/03",
        "/calendar/1850-03-01", "/calendar.php?d=18500301", "/x?from=2024-01-01&to=2031-01-01", "/events/2029-01-01",
        "/agenda/2100-12", "/archive?start=2031-05-17T00:00",
    ],
)  # fmt: skip
def test_dates_in_the_far_past_or_future_indicate_a_calendar(traps, path):
    assert judged(traps, f"https://a.example{path}") == CALENDAR


@pytest.mark.parametrize(
    "path",
    [
        "/1984/", "/books/1984", "/books/1984/reviews", "/isbn/9781984801234", "/isbn/978-0-452-28423-4",
        "/product/2077", "/products/2077/5", "/thread/2077/5", "/item?id=2077", "/item?id=2031&page=5",
        "/film/blade-runner-2049", "/2049/", "/1923/05/12/archives/a-story.html", "/newspapers/1895-05-12",
        "/news/1969/07/20/", "/day/1969-07-20", "/years/1066", "/holiday/1984/12", "/birthdays/1984/12",
        "/2026/11/16/today", "/calendar/2026/11/", "/calendar/2028-12-31", "/events/1995-01-01", "/2028/01/02/",
        "/rfc/2119", "/rfc2119", "/port/3306/05", "/catalog/5512/12/", "/a-2031-05-b", "/x/20310517123456",
        "/v/2031-051", "/order/203105", "/img/20310517.jpg", "/events/1984", "/dates/1815/", "/?y=1984", "/en/2100/",
        "/history/year/1812/month/06", "/2031-13/", "/2031/00/", "/x=21000", "/calendar/", "/model/2040/a",
    ],
)  # fmt: skip
def test_numbers_that_only_look_like_dates_are_accepted(traps, path):
    assert judged(traps, f"https://a.example{path}") == ""


def test_dates_are_accepted_up_to_two_years_from_now(traps):
    then = datetime(2030, 6, 1, tzinfo=UTC).timestamp()
    assert judged(traps, "https://a.example/calendar/2032/12/", then) == ""
    assert judged(traps, "https://a.example/calendar/2033/01/", then) == CALENDAR


def test_parameters_without_end_are_refused(traps):
    many = "&".join(f"p{n}={n}" for n in range(30))
    assert judged(traps, f"https://a.example/?{many}") == ""
    assert judged(traps, f"https://a.example/?{many}&q=1") == PARAMETERS
    assert judged(traps, "https://a.example/?" + "&".join(f"a={n}" for n in range(4))) == ""
    assert judged(traps, "https://a.example/?" + "&".join(f"a={n}" for n in range(5))) == PARAMETERS


def test_the_same_parameters_in_another_order_are_the_same_page(traps):
    assert judged(traps, "https://a.example/?a=1&b=2") == ""
    assert judged(traps, "https://a.example/?b=2&a=1") == PERMUTATION
    assert judged(traps, "https://a.example/?a=1&b=2") == ""
    assert judged(traps, "https://a.example/?b=1&a=2") == ""
    assert judged(traps, "https://a.example/p?b=2&a=1") == ""
    traps.forget()
    assert judged(traps, "https://a.example/?b=2&a=1") == ""


def test_permutations_are_remembered_in_bounded_memory():
    known = Permutations(most=10)
    for number in range(1000):
        assert known.verdict(f"https://a.example/?a={number}&b=2") == ""
    assert len(known._young) + len(known._old) <= 20
    assert known.verdict("https://a.example/?b=2&a=999") == PERMUTATION
    assert known.verdict("https://a.example/?b=2&a=0") == ""


def test_a_domain_has_a_maximum_number_of_hosts():
    hosts = DomainHosts(most=3)
    names = [f"h{n}.example.co.uk" for n in range(5)]
    assert [hosts.verdict(name) for name in names] == ["", "", "", SUBDOMAINS, SUBDOMAINS]
    assert [hosts.verdict(name) for name in names] == ["", "", "", SUBDOMAINS, SUBDOMAINS]
    # Other domains and addresses are none of its business.
    assert [hosts.verdict(f"127.0.0.{n}:8000") for n in range(1, 9)] == [""] * 8
    assert [hosts.verdict(f"site{n}.co.uk") for n in range(9)] == [""] * 9


def test_hosts_are_remembered_in_bounded_memory():
    hosts = DomainHosts()
    for number in range(100_010):
        assert hosts.verdict(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}") == ""
    assert len(hosts._known) <= 100_000
    assert len(hosts._of_domain) <= 100_000


@given(st.text(alphabet="ab/;?&=%.0129-_", max_size=80))
@settings(max_examples=300, deadline=None)
def test_cleaning_any_url_is_idempotent(rest):
    traps = Traps(drop_parameters=("a*", "b0"))
    url = canonical(f"https://a.example/{rest}").url
    clean = traps.cleaned(url)
    assert parts_of(clean).host == "a.example"
    assert traps.cleaned(clean) == clean
    traps.verdict(parts_of(clean), now=NOW)
