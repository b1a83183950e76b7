"""Which group of a robots.txt holds for a User-Agent header: for Shoal's own crawls, and as Scrapy's parser does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protego import Protego

from shoal.politeness.robots_parser import parse
from shoal.politeness.user_agent import product_token, whole_agent

_AGENTS = (
    "MyBot/1.0 (+https://example.org/bot)",
    "Mozilla/5.0 (compatible; MyBot/1.0; +https://example.org/bot)",
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; my-bot/2.1; +http://example.org/) Chrome/120.0.0.0",
    "Scrapy/2.19.0 (+https://scrapy.org)",
    "mybot",
    "my bot",
)
_NAMES = (
    "*",
    "mybot",
    "MyBot/1.0",
    "MyBot/2.0",
    "my",
    "bot",
    "mozilla",
    "my-bot",
    "scrapy",
    "chrome",
    "compatible",
    "my*",
)


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("MyBot/1.0 (+https://example.org/bot)", "MyBot"),
        ("MyBot", "MyBot"),
        ("Mozilla/5.0 (compatible; MyBot/1.0; +https://other.example/1)", "MyBot"),
        ("Mozilla/5.0 (compatible; MyBot)", "MyBot"),
        ("Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; MyBot/2.1) Chrome/W.X.Y.Z", "MyBot"),
        ("Mozilla/5.0 (Linux; Android 6.0) AppleWebKit/537.36 (KHTML, like Gecko) (compatible; MyBot/2.1)", "MyBot"),
        ("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120 Safari/537.36", "Mozilla"),
    ],
)
def test_a_robot_that_imitates_a_browser_is_recognized_by_its_own_name(user_agent: str, token: str) -> None:
    assert product_token(user_agent) == token


@given(
    agent=st.sampled_from(_AGENTS),
    groups=st.lists(
        st.tuples(
            st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3),
            st.lists(
                st.tuples(st.booleans(), st.sampled_from(("/", "/a", "/a/b", "/b", "*b"))), min_size=1, max_size=3
            ),
            st.sampled_from((0, 2, 5)),
        ),
        max_size=4,
    ),
    path=st.sampled_from(("/", "/a", "/a/b", "/b")),
)
def test_urls_that_scrapys_parser_forbids_are_forbidden(
    agent: str, groups: list[tuple[list[str], list[tuple[bool, str]], int]], path: str
) -> None:
    lines = []
    for names, rules, delay in groups:
        lines += [f"User-agent: {name}" for name in names]
        lines += [f"{'Allow' if allow else 'Disallow'}: {rule}" for allow, rule in rules]
        lines += [f"Crawl-delay: {delay}"] if delay else []
    text = "\n".join(lines)
    theirs, ours = Protego.parse(text), parse(text.encode(), whole_agent(agent))
    assert theirs.can_fetch(f"http://example.org{path}", agent) or not ours.allows(path), text
    assert ours.crawl_delay_seconds >= (theirs.crawl_delay(agent) or 0.0), text


def test_the_name_of_a_long_user_agent_is_found() -> None:
    agent = "Mozilla/5.0 (" + "; ".join(f"+https://example.org/{number}" for number in range(20)) + ") MyBot/1.0"
    assert not parse(b"User-agent: mybot\nDisallow: /", whole_agent(agent)).allows("/")
