"""robots.txt against public vectors and files: every verdict, and every exception by name."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from shoal.politeness.robots_parser import parse
from shoal.politeness.robots_policy import (
    MAX_HOPS,
    Meaning,
    settle,
    standing,
    verdict,
)
from shoal.politeness.robots_rules import Rules
from tests.unit.robots import CRAWLER_COMMONS, FUZZ_SEEDS, RAW_ANSWERS, data, path_and_query

# --- The public vectors ---------------------------------------------------------------------------------------------


def test_all_public_vectors_pass_with_the_overrides_of_the_rfc() -> None:
    vectors: list[dict[str, Any]] = json.loads(data("robots/google_robots_test_cc.json").read_text())["vectors"]
    overrides = json.loads(data("robots/rfc9309_overrides.json").read_text())["invert"]
    inverted = {(case["test"], case["url"]) for case in overrides if case["suite"] == "google_robots_test_cc"}
    # The two exceptions, both in 2.2.2: octets outside ASCII are encoded before they are compared, and encoded
    # unreserved ones are decoded. Google's library leaves both to its caller.
    assert inverted == {
        ("ID_Encoding", "http://foo.bar/foo/bar/ツ"),
        ("ID_Encoding", "http://foo.bar/foo/bar/baz"),
    }
    assert len(vectors) == 145
    wrong = []
    for case in vectors:
        expected = case["allowed"] != ((case["test"], case["url"]) in inverted)
        rules = parse(base64.b64decode(case["robotstxt_b64"]), case["useragent"])
        if rules.allows(path_and_query(case["url"])) != expected:
            wrong.append((case["test"], case["useragent"], case["url"][:80], expected))
    assert not wrong


def test_every_file_of_crawler_commons_is_read() -> None:
    files = sorted(data(CRAWLER_COMMONS).iterdir())
    assert len(files) == 24
    for file in files:
        rules = parse(file.read_bytes(), "Shoal")
        assert Rules.unpack(rules.pack()) == rules


# The files carry no expected results; these are what each says of itself, by its name, its comments or the RFC example.
@pytest.mark.parametrize(
    ("file", "token", "allowed", "forbidden"),
    [
        # Its comment gives /login/ to mybot too, but the group above that one has a rule, and so mybot is not in it.
        ("crawl-delay-group-merging.txt", "mybot", "/login/", "/private/"),
        ("crawl-delay-group-merging.txt", "yourbot", "/", "/private/ /login/"),
        ("crawl-delay-group-merging.txt", "other", "/private/ /login/", ""),
        ("extensions-group-merging.txt", "mybot", "/", "/private/ /login/"),
        ("extensions-group-merging.txt", "yourbot", "/", "/private/ /login/"),
        ("extensions-group-merging.txt", "other", "/llms.txt", "/"),
        ("extension-robots.txt", "mybot", "/secret/ /admin/", "/private/"),
        ("directive-typos-robots.txt", "bot1", "/", "/desallow/ /dissalow/"),
        ("directive-typos-robots.txt", "bot2", "/", "/useragent/"),
        ("directive-typos-robots.txt", "bot3", "/", "/useg-agent/"),
        ("directive-typos-robots.txt", "bot4", "/", "/useragent-no-colon/"),
        ("format-errors-robots.txt", "bot1", "/", "/whitespace-before-colon/ /no-colon/"),
        ("format-errors-robots.txt", "bot2", "/", "/no-colon-useragent/"),
        ("format-errors-robots.txt", "bot3", "/whitespace-before-colon", "/"),
        ("malformed-path.txt", "any", "/wiki/", "/wiki/Wikipedia_talk:Mediation_Committee/"),
        ("malformed-path.txt", "any", "/wiki/", "/wiki/Wikipedia_talk%3Mediation_Committee/"),
        ("many-user-agents.txt", "wget", "", "/ /index.html"),
        ("many-user-agents.txt", "mysuperbot", "/", ""),
        ("merge-rules.txt", "wget", "/foo/bar /ckh/bar", "/tmp/bar"),
        ("merge-rules.txt", "other", "/ckh/bar", "/foo/bar /tmp/bar"),
        ("precedence-of-rules.txt", "wget", "/foo /index.html", "/x"),
        ("precedence-of-rules.txt", "testy", "/foo/bar", "/foo /foo/baz"),
        ("rfc9309-example-longest-match-robots.txt", "foobot", "/example/page/", "/example/page/disallowed.gif"),
        ("rfc9309-example-rule-group-merging.txt", "examplebot", "/qux", "/foo /bar /baz"),
        ("rfc9309-example-rule-group-merging.txt", "other", "/baz", "/foo /bar"),
        ("rfc9309-example-rule-group-merging.txt", "bazbot", "/foo /bar", "/baz"),
        ("rfc9309-example-simple-robots.txt", "other", "/publications/ /a.gif?x", "/a.gif /example/"),
        ("rfc9309-example-simple-robots.txt", "foobot", "/example/page.html /example/allowed.gif", "/ /a.gif"),
        ("rfc9309-example-simple-robots.txt", "barbot", "/a.gif", "/example/page.html"),
        ("rfc9309-example-simple-robots.txt", "quxbot", "/ /a.gif /example/", ""),
        ("robots-with-utf8-bom.txt", "foobot", "/", "/profile /a/output/print"),
        ("robots-with-utf16le-bom.txt", "foobot", "/", "/profile /a/output/print"),
        ("robots-with-utf16be-bom.txt", "foobot", "/", "/profile /a/output/print"),
        ("twitter.com-robots.txt", "other", "/a", "/a?b /a/with_friends"),
        ("wildcards.txt", "other", "/", "/gp/cart /dp/product-availability/"),
        ("www.flot.com-robots.txt", "foobot", "/", "/img/ /admin/x"),
    ],
)
def test_files_of_crawler_commons_give_the_expected_rules(file: str, token: str, allowed: str, forbidden: str) -> None:
    rules = parse((data(CRAWLER_COMMONS) / file).read_bytes(), token)
    assert [path for path in allowed.split() if not rules.allows(path)] == []
    assert [path for path in forbidden.split() if rules.allows(path)] == []


@pytest.mark.parametrize(
    ("file", "token", "seconds"),
    [
        ("astore.amazon.com-robots.txt", "any", 5),
        ("crawl-delay-group-merging.txt", "mybot", 10),
        ("crawl-delay-group-merging.txt", "other", 30),
        ("dos-line-endings.txt", "any", 1),
        ("twitter.com-robots.txt", "msnbot", 10),
        ("twitter.com-robots.txt", "Googlebot", 0),
        ("twitter.com-robots.txt", "other", 0),
    ],
)
def test_crawl_delays_of_crawler_commons_are_read(file: str, token: str, seconds: float) -> None:
    assert parse((data(CRAWLER_COMMONS) / file).read_bytes(), token).crawl_delay_seconds == seconds


@pytest.mark.parametrize(
    ("file", "sitemaps"),
    [
        ("sitemap-robots.txt", ("http://domain.com/sitemap.xml", "http://domain.com/dir/MixedCased-sitemap.xml")),
        ("sitemap-robots-dedup.txt", ("http://example.org/sitemap.xml",)),
        ("relative-sitemap-robots.txt", ("/sitemap.xml",)),
        ("format-errors-robots.txt", ("/sitemap.xml",)),
        ("robots-with-utf16le-bom.txt", ("http://www.newsweek.com/sitemap_index.xml",)),
    ],
)
def test_sitemaps_of_crawler_commons_are_read(file: str, sitemaps: tuple[str, ...]) -> None:
    assert parse((data(CRAWLER_COMMONS) / file).read_bytes(), "Shoal").sitemaps == sitemaps


def test_every_fuzz_seed_is_read() -> None:
    files = sorted(data(FUZZ_SEEDS).iterdir())
    assert len(files) == 22
    for file in files:
        rules = parse(file.read_bytes(), "Shoal")
        assert rules.allows("/robots.txt")
        assert Rules.unpack(rules.pack()) == rules


@pytest.mark.parametrize(
    ("file", "token", "allowed", "forbidden"),
    [
        ("disallow-all", "a", "", "/ /x"),
        ("grouping", "a", "/c /separator", "/a /b"),
        ("grouping", "b", "/separator", "/a /b /c"),
        ("grouping", "c", "/a", "/b /c"),
        ("google-matching", "d", "/Fish.asp /catfish", "/fish /fish.html /fishheads"),
        ("google-matching", "e", "/fish /Fish/Salmon.asp", "/fish/ /fish/salmon.htm"),
        ("google-precedence", "b", "/folder/page", "/folder /folder2"),
        ("google-precedence", "c", "/page", "/page.htm"),
        ("google-precedence", "d", "/", "/page.htm"),
        ("google-wildcards", "any", "/path /path/l/x", "/path/l /pathl"),
        ("google-sitemaps", "e", "/d", "/g"),
        ("google-delays", "a", "/", "/c"),
        ("html", "any", "/", ""),
        ("parse-error-001", "Google", "/", ""),
        ("wild-002", "any", "/", "/it/oroscopo-di-oggi/ariete"),
        ("wild-003", "any", "/news/directory /", "/news /search"),
    ],
)
def test_fuzz_seeds_that_are_robots_files_give_the_expected_rules(
    file: str, token: str, allowed: str, forbidden: str
) -> None:
    rules = parse((data(FUZZ_SEEDS) / file).read_bytes(), token)
    assert [path for path in allowed.split() if not rules.allows(path)] == []
    assert [path for path in forbidden.split() if rules.allows(path)] == []


def test_raw_responses_are_interpreted_by_their_status() -> None:
    files = sorted(data(RAW_ANSWERS).glob("*/robots.txt"))
    assert len(files) == 16
    for file in files:
        head, _, body = file.read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")
        status = int(head.split()[1])
        meaning = verdict(status, hops=MAX_HOPS)
        copy = settle(meaning, now=1.0, body=body, token="Shoal")
        rules = standing(copy, token="Shoal", now=1.0, unreachable=meaning is Meaning.UNREACHABLE).rules
        assert rules is not None
        assert rules.allows("/allowed") == (status < 500 and b"Disallow: /\n" not in body + b"\n"), file
        assert rules.allows("/disallowed") == (status < 500 and b"Disallow: /" not in body), file
