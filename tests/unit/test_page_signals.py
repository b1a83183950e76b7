"""Which dates of a sitemap or feed mean that a page has changed."""

from __future__ import annotations

import msgspec

from shoal.frontier.signals import SignalKind
from shoal.model import Visit
from shoal.model.page_history import PageHistory
from shoal.parse.html import parse
from shoal.parse.sitemap import Sitemap
from shoal.urls.canonical import canonical
from shoal.worker.page_signals import listed_hash, signals_of

DAY = 86400.0
NOW = 1000 * DAY
MAP = "http://a.example/sitemap.xml"
HISTORY = PageHistory(rate_mean=1, rate_precision=1, last_visited=int(NOW - 3 * DAY))
VISIT = Visit(url=MAP, history=HISTORY)


def listed(kind: str = "urlset", **dates: float) -> Sitemap:
    changed_at = {f"http://a.example/{name}": at for name, at in dates.items()}
    return Sitemap(urls=tuple(changed_at), kind=kind, changed_at=changed_at)


def names(sitemap: Sitemap, visit: Visit = VISIT) -> list[str]:
    result = signals_of(sitemap, visit, canonical(MAP), NOW)
    return [signal.url.rpartition("/")[2] for signal in result.signals] if result else []


def test_dates_since_the_last_visit_of_the_file_are_signals_the_newest_first() -> None:
    assert names(listed(a=NOW - DAY, b=NOW - 4 * DAY, old=NOW - 6 * DAY, c=NOW)) == ["c", "a", "b"]
    result = signals_of(listed(a=NOW), VISIT, canonical(MAP), NOW)
    assert result is not None
    assert (result.kind, result.signals) == (SignalKind.SITEMAP, [("http://a.example/a", NOW)])
    feed = signals_of(listed("feed", a=NOW), VISIT, canonical(MAP), NOW)
    assert feed is not None
    assert feed.kind is SignalKind.FEED


def test_dates_in_the_future_other_hosts_and_the_first_visit_give_no_signals() -> None:
    assert names(listed(a=NOW + 2 * DAY)) == []
    assert names(msgspec.structs.replace(listed(), changed_at={"http://b.example/": NOW})) == []
    assert names(listed(a=NOW), Visit(url=MAP)) == []


def test_a_file_that_marks_everything_as_new_gives_at_most_a_thousand_signals() -> None:
    dates = {f"http://a.example/p{number}": NOW - number for number in range(3000)}
    everything = Sitemap(urls=tuple(dates), kind="urlset", changed_at=dates)
    assert names(everything) == [f"p{number}" for number in range(1000)]


def test_a_file_has_changed_when_it_lists_something_else() -> None:
    assert listed_hash(listed(a=NOW)) == listed_hash(listed("feed", a=NOW))
    assert len({listed_hash(listed(a=NOW)), listed_hash(listed(a=NOW + 1)), listed_hash(listed(b=NOW))}) == 3


def test_a_page_names_feeds_by_type() -> None:
    body = b"""<link rel=alternate type="application/rss+xml" href=/rss><link rel="Alternate" type=application/atom+xml
        href=atom#x><link rel=alternate hreflang=de href=/de><link rel=alternate type=text/html href=/other>"""
    feeds = {link.url for link in parse(body, url="http://a.example/d/", follow=frozenset({"a", "feed"})).links}
    assert feeds == {"http://a.example/rss", "http://a.example/d/atom"}
    assert parse(body, url="http://a.example/d/").links == ()
