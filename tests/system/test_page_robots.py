"""Robots directives of pages: which links are followed, and what their rows contain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.site.responses import Response, page
from tests.system.crawls import CrawlResult, Crawls, open_crawls


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    with open_crawls(tmp_path_factory.mktemp("pages"), hosts=60, workers=2) as opened:
        yield opened


def followed(crawls: Crawls, response: Response, **policy: Any) -> tuple[bool, str, CrawlResult]:
    """Whether the link /next of a page was followed, and the flags in its row."""
    (host,) = crawls.site.take()
    crawls.site.at(host, "/next", page())
    start = crawls.site.at(host, "/", response)
    done = crawls.run(start, **policy)
    return f"http://{host}/next" in done.judge.counts(), done.rows[start]["robots"], done


def tagged(*values: str) -> Response:
    return msgspec.structs.replace(page("/next"), headers=tuple(("X-Robots-Tag", value) for value in values))


@pytest.mark.parametrize(
    ("head", "follows", "flags"),
    [
        ("", True, ""),
        ('<meta name="robots" content="nofollow">', False, "nofollow"),
        ('<meta name="ROBOTS" content="NOFOLLOW">', False, "nofollow"),
        ('<meta name="robots" content="none">', False, "noindex nofollow"),
        ('<meta name="robots" content="noindex">', True, "noindex"),
        ('<meta name="robots" content="noindex, nofollow">', False, "noindex nofollow"),
        ('<meta name="shoal" content="nofollow">', False, "nofollow"),
        ('<meta name="otherbot" content="nofollow">', True, ""),
        ('<meta name="robots" content="follow"><meta name="shoal" content="nofollow">', False, "nofollow"),
        ('<meta name="robots" content="nofollow"><meta name="shoal" content="follow">', False, "nofollow"),
        ('<meta name="robots" content="noarchive">', True, "noarchive"),
    ],
)
def test_robots_directives_of_a_page_are_obeyed(crawls: Crawls, head: str, follows: bool, flags: str) -> None:
    assert followed(crawls, page("/next", head=head))[:2] == (follows, flags)


@pytest.mark.parametrize(
    ("values", "follows", "flags"),
    [
        (["nofollow"], False, "nofollow"),
        (["noindex", "nofollow"], False, "noindex nofollow"),
        (["shoal: nofollow"], False, "nofollow"),
        (["otherbot: nofollow"], True, ""),
        (["otherbot: nofollow, shoal: noindex"], True, "noindex"),
        (["unavailable_after: Sunday, 06-Nov-94 08:49:37 GMT"], True, "noindex"),
        (["unavailable_after: Wed, 01 Jan 2070 00:00:00 GMT, nofollow"], False, "nofollow"),
    ],
)
def test_robots_directives_in_headers_are_obeyed(crawls: Crawls, values: list[str], follows: bool, flags: str) -> None:
    assert followed(crawls, tagged(*values))[:2] == (follows, flags)


def test_the_most_restrictive_of_header_and_page_applies(crawls: Crawls) -> None:
    head = '<meta name="robots" content="index, follow">'
    both = msgspec.structs.replace(page("/next", head=head), headers=(("X-Robots-Tag", "none"),))
    assert followed(crawls, both)[:2] == (False, "noindex nofollow")


@pytest.mark.parametrize(
    ("rel", "follows"),
    [("nofollow", False), ("NoFollow", False), ("noopener nofollow", False), ("nofollower", True), ("ugc", True)],
)
def test_nofollow_in_the_rel_of_a_link_is_obeyed(crawls: Crawls, rel: str, follows: bool) -> None:
    response = page(body=f'<a href="/next" rel="{rel}">next</a>')
    assert followed(crawls, response)[:2] == (follows, "")


def test_a_repeated_link_is_followed_if_one_occurrence_may_be(crawls: Crawls) -> None:
    response = page(body='<a href="/next" rel="nofollow">next</a> <a href="/next">next</a>')
    assert followed(crawls, response)[0]


def test_a_page_with_noindex_is_stored_with_its_flag_and_its_text(crawls: Crawls) -> None:
    response = page(title="Hidden", head='<meta name="robots" content="noindex">', body="Some words.")
    _, flags, done = followed(crawls, response)
    (row,) = done.rows.values()
    assert (row["title"], flags) == ("Hidden", "noindex")
    assert "Some words." in row["text"]


def test_another_token_obeys_another_meta_element(crawls: Crawls) -> None:
    response = page("/next", head='<meta name="librarian" content="nofollow">')
    assert not followed(crawls, response, user_agent="Librarian/1.0")[0]


def test_a_crawl_that_ignores_robots_txt_ignores_nofollow(crawls: Crawls) -> None:
    response = page("/next", head='<meta name="robots" content="nofollow">')
    assert followed(crawls, response, ignore_robots=True)[0]


def test_a_robots_header_of_a_page_that_is_not_html_is_stored(crawls: Crawls) -> None:
    plain = Response(body="words", type="text/plain", headers=(("X-Robots-Tag", "noindex"),))
    assert followed(crawls, plain)[1] == "noindex"
