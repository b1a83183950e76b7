"""robots.txt: what RFC 9309 says of a file, of the answer it came in and of its age. Numbers are its sections."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import SettingsError, StoreCorrupt
from shoal.politeness.answer import (
    FRESH_SECONDS,
    MAX_HOPS,
    UNREACHABLE_SECONDS,
    Copy,
    Meaning,
    settle,
    standing,
    verdict,
)
from shoal.politeness.pattern import Pattern, spell
from shoal.politeness.robots import (
    ALLOW_ALL,
    DISALLOW_ALL,
    MAX_BYTES,
    MAX_NOTES,
    MAX_SITEMAPS,
    Rules,
    check_token,
    parse,
)

# Public vectors and files, beside the checkout where they are kept.
DATA = Path(__file__).parents[3] / "shared" / "data"
CRAWLER_COMMONS = "crawler-commons/src/test/resources/robots"
FUZZ_SEEDS = "temoto-robotstxt/_gofuzz/corpus"
RAW_ANSWERS = "reppy/tests/asis"
OURS = "Shoal"


def _data(path: str) -> Path:
    found = DATA / path
    if not found.exists():
        pytest.skip(f"{path} is absent: put the public robots.txt data beside the checkout, as shared/data/{path}")
    return found


def _rules(text: str, token: str = OURS) -> Rules:
    return parse(text.encode(), token)


def _verdicts(text: str, *paths: str, token: str = OURS) -> list[bool]:
    rules = _rules(text, token)
    return [rules.allows(path) for path in paths]


def _path_and_query(url: str) -> str:
    after = url.partition("://")[2]
    return after[after.find("/") :] if "/" in after else ""


# --- The public vectors ---------------------------------------------------------------------------------------------


def test_all_public_vectors_hold_with_the_overrides_of_the_rfc() -> None:
    vectors: list[dict[str, Any]] = json.loads(_data("robots/google_robots_test_cc.json").read_text())["vectors"]
    overrides = json.loads(_data("robots/rfc9309_overrides.json").read_text())["invert"]
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
        if rules.allows(_path_and_query(case["url"])) != expected:
            wrong.append((case["test"], case["useragent"], case["url"][:80], expected))
    assert not wrong


def test_every_file_of_crawler_commons_is_read() -> None:
    files = sorted(_data(CRAWLER_COMMONS).iterdir())
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
def test_files_of_crawler_commons_mean_what_they_say(file: str, token: str, allowed: str, forbidden: str) -> None:
    rules = parse((_data(CRAWLER_COMMONS) / file).read_bytes(), token)
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
    assert parse((_data(CRAWLER_COMMONS) / file).read_bytes(), token).crawl_delay_seconds == seconds


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
    assert parse((_data(CRAWLER_COMMONS) / file).read_bytes(), "Shoal").sitemaps == sitemaps


def test_every_fuzz_seed_is_read() -> None:
    files = sorted(_data(FUZZ_SEEDS).iterdir())
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
def test_fuzz_seeds_that_are_files_mean_what_they_say(file: str, token: str, allowed: str, forbidden: str) -> None:
    rules = parse((_data(FUZZ_SEEDS) / file).read_bytes(), token)
    assert [path for path in allowed.split() if not rules.allows(path)] == []
    assert [path for path in forbidden.split() if rules.allows(path)] == []


def test_raw_answers_mean_what_their_status_says() -> None:
    files = sorted(_data(RAW_ANSWERS).glob("*/robots.txt"))
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


# --- Groups: 2.1 and 2.2.1 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["Shoal", "shoal_bot", "A-b_C", "x" * 64])
def test_a_product_token_of_letters_underscores_and_hyphens_is_taken(token: str) -> None:
    assert check_token(token) == token


@pytest.mark.parametrize("token", ["", "Shoal/1.0", "Shoal 2", "bot1", "*", "Fischschwärme", "a\n", "x" * 65, None])
def test_any_other_product_token_is_refused(token: Any) -> None:
    with pytest.raises(SettingsError, match="product token"):
        check_token(token)


@pytest.mark.parametrize("line", ["Shoal", "SHOAL", "shoal", "Shoal/1.0", "Shoal Crawler", "shoal # ours", "\tShoal "])
def test_our_group_is_found_whatever_its_case(line: str) -> None:
    assert _verdicts(f"User-agent: {line}\nDisallow: /x\n", "/x", "/y") == [False, True]


@pytest.mark.parametrize("line", ["Sho", "Shoal-Images", "Shoal2", "xShoal", "Shoalx", "", "NotShoal Shoal"])
def test_a_token_that_only_resembles_ours_is_not_ours(line: str) -> None:
    assert _verdicts(f"User-agent: {line}\nDisallow: /x\n", "/x") == [True]


def test_our_groups_merge_and_replace_those_of_everybody() -> None:
    text = (
        "User-agent: shoal\nDisallow: /a\n\nUser-agent: *\nDisallow: /c\n\n"
        "User-agent: other\nDisallow: /d\n\nUser-agent: SHOAL\nDisallow: /b\n"
    )
    assert _verdicts(text, "/a", "/b", "/c", "/d") == [False, False, True, True]


def test_without_a_group_of_ours_all_groups_of_everybody_hold() -> None:
    text = "User-agent: *\nDisallow: /a\nUser-agent: other\nDisallow: /b\nUser-agent: *\nDisallow: /c\n"
    assert _verdicts(text, "/a", "/b", "/c") == [False, True, False]


def test_a_group_of_ours_without_rules_allows_everything() -> None:
    assert _verdicts("User-agent: *\nDisallow: /\n\nUser-agent: Shoal\n", "/x") == [True]
    assert _verdicts("User-agent: *\nDisallow: /\n\nUser-agent: Shoal\nDisallow:\n", "/x") == [True]


def test_several_user_agent_lines_share_a_group_and_blank_lines_do_not_end_it() -> None:
    text = "User-agent: a\n\n# words\n\nUser-agent: Shoal\n\n\nDisallow: /x\n\n\nDisallow: /y\n"
    assert _verdicts(text, "/x", "/y") == [False, False]
    assert _verdicts(text, "/x", "/y", token="a") == [False, False]


def test_rules_before_the_first_user_agent_line_belong_to_nobody() -> None:
    assert _verdicts("Disallow: /\nCrawl-delay: 9\nUser-agent: *\nDisallow: /x\n", "/y", "/x") == [True, False]
    assert _rules("Crawl-delay: 9\nUser-agent: *\nDisallow: /x\n").crawl_delay_seconds == 0


@pytest.mark.parametrize("line", ["Sitemap: http://a/", "Crawl-delay: 2", "Host: a", "unknown: x", "no words", "<p>"])
def test_other_lines_neither_end_nor_split_a_group(line: str) -> None:
    text = f"User-agent: a\n{line}\nUser-agent: Shoal\n{line}\nDisallow: /x\n{line}\nDisallow: /y\n"
    for token in ("a", "Shoal"):
        assert _verdicts(text, "/x", "/y", "/z", token=token) == [False, False, True]


# --- Precedence, spelling and special characters: 2.2.2 and 2.2.3 ---------------------------------------------------


def test_the_longest_match_wins_whatever_the_order() -> None:
    rules = ["Allow: /a/b", "Disallow: /a", "Disallow: /a/b/c"]
    for order in (rules, rules[::-1]):
        text = "User-agent: *\n" + "\n".join(order)
        assert _verdicts(text, "/a", "/a/b", "/a/b/c", "/") == [False, True, False, True]


@pytest.mark.parametrize("path", ["/x", "/*x", "/x$", "*"])
def test_between_equal_rules_allow_wins(path: str) -> None:
    for order in (f"Allow: {path}\nDisallow: {path}", f"Disallow: {path}\nAllow: {path}"):
        assert _verdicts(f"User-agent: *\n{order}\n", "/x") == [True]


def test_a_prefix_and_a_wildcard_of_the_same_length_are_equal_too() -> None:
    assert _verdicts("User-agent: *\nDisallow: /ab\nAllow: /*b\n", "/ab") == [True]
    assert _verdicts("User-agent: *\nAllow: /ab\nDisallow: /*b\n", "/ab") == [True]


def test_octets_are_counted_after_encoding() -> None:
    # "/%C3%A9" has seven octets, "/*abc" five.
    assert _verdicts("User-agent: *\nDisallow: /é\nAllow: /*abc\n", "/éabc") == [False]


def test_paths_are_case_sensitive_and_robots_txt_is_always_allowed() -> None:
    text = "User-agent: *\nDisallow: /X\nDisallow: /robots.txt\nDisallow: /*.txt$\n"
    assert _verdicts(text, "/x", "/X", "/robots.txt", "/robots%2Etxt", "/a/robots.txt") == [
        True, False, True, True, False,
    ]  # fmt: skip


def test_an_empty_path_is_the_root() -> None:
    assert _verdicts("User-agent: *\nDisallow: /$\n", "", "/", "?a", "/#f", "/a") == [False, False, True, False, True]


# Figure 4 of 2.2.2, both ways round, and what follows from its text.
@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz"),
        ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar"),
        ("/foo/bar/ツ", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%E3%83%84", "/foo/bar/%e3%83%84"),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz"),
        ("/~a", "/%7Ea"),
        ("/a:b@c", "/a%3Ab%40c"),
        ("/a b", "/a%20b"),
        ("/a?b?c/d", "/a?b%3Fc%2Fd"),
        ("/100%", "/100%25"),
        ("/a%zz", "/a%25zz"),
    ],
)
def test_rule_and_path_are_brought_to_one_spelling(rule: str, path: str) -> None:
    for left, right in ((rule, path), (path, rule), (rule, rule), (path, path)):
        assert _verdicts(f"User-agent: *\nDisallow: {left}$\n", right) == [False], (left, right)


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("/a%2Fb", "/a/b"),
        ("/a/b", "/a%2Fb"),
        ("/a%3Fb", "/a?b"),
        ("/a?b%3Dc", "/a?b=c"),
        ("/a?b%26c", "/a?b&c"),
        ("/%2562", "/b"),
        ("/*%2Fa", "/x/a"),
    ],
)
def test_separators_differ_from_their_encoded_octets(rule: str, path: str) -> None:
    assert _verdicts(f"User-agent: *\nDisallow: {rule}\n", path) == [True]


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("/*/print/", "/a?u=/print/"),
        ("/*/print/", "/a?u=%2Fprint%2F"),
        ("/*u=%2Fb", "/a?u=%2Fb"),
        ("/*u=%2Fb", "/a?u=/b"),
        ("/*%2Fb", "/a%2Fb"),
        ("/*?b", "/a?x?b"),
        ("*?b=/c*/d", "/a?b=%2Fc%2Fd"),
        ("/*a/*/b$", "/a/?x/b"),
    ],
)
def test_text_after_a_star_matches_in_the_path_and_in_the_query(rule: str, path: str) -> None:
    assert _verdicts(f"User-agent: *\nDisallow: {rule}\n", path) == [False]


@pytest.mark.parametrize(
    ("rule", "matching", "others"),
    [
        ("/a*b", "/ab /axb /a/b/c /a?b", "/a /ba"),
        ("/a$", "/a", "/ab /a/ /a?b"),
        ("/a*$", "/a /ab", "/b"),
        ("/*a$", "/a /aa /xa /aba", "/ab"),
        ("/a$b", "/a$b /a%24bc", "/a /ab"),
        ("/a%24", "/a$ /a%24b", "/a"),
        ("/a%2A", "/a* /a%2Ab", "/ab /a"),
        ("/a%2a.html", "/a*.html", "/abc.html"),
        ("/a#b", "/a /ab", "/b"),
        ("*.gif$", "/a.gif", "/a.gif?b"),
        ("/**", "/ /a", ""),
        ("/ab*ab$", "/abab /abxab", "/ab /aba"),
    ],
)
def test_special_characters_mean_what_2_2_3_says(rule: str, matching: str, others: str) -> None:
    rules = _rules(f"User-agent: *\nDisallow: {rule}\n")
    assert [path for path in matching.split() if rules.allows(path)] == []
    assert [path for path in others.split() if not rules.allows(path)] == []


def test_allowing_the_index_page_allows_its_folder_and_nothing_more() -> None:
    text = "User-agent: *\nDisallow: /\nAllow: /a/index.html\nAllow: /b/xindex.html\n"
    assert _verdicts(text, "/a/", "/a/index.html", "/a/x", "/a", "/b/") == [True, True, False, False, False]


def _matches_slowly(rule: str, text: str) -> bool:
    """The other opinion: all prefixes of the rule against all prefixes of the text."""
    anchored = rule.endswith("$")
    rule = rule[:-1] if anchored else rule + "*"
    row = [True] + [False] * len(text)
    for symbol in rule:
        if symbol == "*":
            for at in range(1, len(row)):
                row[at] = row[at] or row[at - 1]
        else:
            row = [False] + [row[at] and text[at] == symbol for at in range(len(text))]
    return row[-1]


@given(st.text("ab*$", max_size=12), st.text("ab", max_size=16))
def test_the_matcher_agrees_with_a_slow_one(rule: str, text: str) -> None:
    text = "/" + text
    assert Pattern(b"/" + rule.encode()).matches(text, len(text)) == _matches_slowly("/" + rule, text)


class _Counted(str):
    """Text that counts the symbols that are looked at."""

    steps = 0

    def find(self, piece: str, start: int = 0, end: int | None = None) -> int:  # type: ignore[override]
        end = len(self) if end is None else min(end, len(self))
        found = super().find(piece, start, end)
        self.steps += 1 + (max(0, end - start) if found < 0 else found + len(piece) - start)
        return found


@pytest.mark.parametrize("stars", [1, 1000, 8000])
@pytest.mark.parametrize("piece", ["", "a", "/a", "%2Fa", "b", "/b", "ab"])
@pytest.mark.parametrize("text", ["/" + "a" * 8000, "/" + "/a" * 4000, "/?" + "/a" * 4000, "/aaaa" + "/a?b=/a" * 999])
def test_a_rule_of_any_number_of_stars_is_matched_in_linear_steps(stars: int, piece: str, text: str) -> None:
    rule = "/" + f"*{piece}" * stars + "*z"
    counted = _Counted(spell(text))
    query_at = text.find("?") if "?" in text else len(text)
    assert not Pattern(rule.encode()).matches(counted, query_at)
    assert counted.steps <= 3 * (len(rule) + len(text))


# --- Foreign bytes: 2.2.4, 2.3.1.5 and 2.5 --------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\n\r", "\n\n"])
def test_any_line_end_ends_a_line(end: str) -> None:
    text = end.join(["User-agent: *", "Disallow: /x", "Allow: /x/y"])
    assert _verdicts(text, "/x", "/x/y") == [False, True]


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbfUser-agent: *\nDisallow: /x\n",
        b"\xef\xbbUser-agent: *\nDisallow: /x\n",
        "\ufeffUser-agent: *\nDisallow: /x\n".encode("utf-16-le"),
        "\ufeffUser-agent: *\nDisallow: /x\n".encode("utf-16-be"),
        "User-agent: *\nDisallow: /x\n".encode("utf-16-le"),
        b"User-agent: *\0\nDisallow: /x\0\n",
        b"\0\0\nUser-agent: *\n\0Disallow: /x\n",
        b"caf\xe9: \xe9\nUser-agent: * # caf\xe9\nDisallow: /x\n",
        b"<!DOCTYPE html>\n<body>\nUser-agent: *\nDisallow: /x\n</body>",
        b"  User-agent :\t*  \n\tDisallow\t:  /x   # why\n",
        b"User-agent *\nDisallow /x\n",
    ],
)
def test_lines_that_parse_are_used_whatever_stands_around_them(body: bytes) -> None:
    rules = parse(body, "Shoal")
    assert [rules.allows("/x"), rules.allows("/y")] == [False, True]


def test_latin_1_octets_match_their_percent_encoding() -> None:
    rules = parse(b"User-agent: *\nDisallow: /caf\xe9\n", "Shoal")
    assert [rules.allows("/caf%E9"), rules.allows("/caf%C3%A9")] == [False, True]


def test_html_instead_of_text_allows_everything_and_is_noted() -> None:
    rules = _rules("<html><head><title>404: not found</title></head><body><a href='/x'>x</a></body></html>")
    assert rules.allows("/x")
    assert rules.notes == ("it looks like HTML",)


def test_a_sentence_is_no_rule() -> None:
    assert _verdicts("User-agent: *\nDisallow all of it\nDisallow x\nDisallow: x\n", "/all", "/x") == [True, True]


@given(st.binary(max_size=400), st.text(max_size=40))
def test_any_bytes_give_rules_and_any_text_is_a_path(body: bytes, path: str) -> None:
    rules = parse(b"User-agent: *\nDisallow: /" + body, "Shoal")
    assert rules.allows("/robots.txt")
    assert rules.allows(path) in (True, False)
    assert Rules.unpack(rules.pack()) == rules
    assert len(rules.notes) <= MAX_NOTES


PARTS = ["/", "?", "%", "%2F", "%3f", "=", "&", "%3D", "a", "%61", "*", "$", "ツ", "%E3%83%84", ":", "%zz"]


@given(st.lists(st.sampled_from(PARTS), max_size=12))
def test_a_path_matches_the_rule_that_is_spelled_like_it(parts: list[str]) -> None:
    path = "/" + "".join(parts)
    rule = path.replace("*", "%2A").replace("$", "%24") + "$"
    assert not _rules(f"User-agent: *\nDisallow: {rule}\n").allows(path)


@pytest.mark.parametrize("size", [6_000_000, MAX_BYTES + 1])
def test_a_long_file_is_read_up_to_500_kib_and_the_last_whole_line(size: int) -> None:
    start = b"User-agent: *\nDisallow: /first\n"
    last = b"Disallow: /last\n"
    cut = b"Disallow: /cut/here"
    comment = b"#" * (MAX_BYTES - len(start) - len(last) - len(cut) - 1 + len(b"/here")) + b"\n"
    body = start + comment + last + cut
    assert body[:MAX_BYTES].endswith(b"Disallow: /cut")
    rules = parse(body.ljust(size, b"\n") + b"\nDisallow: /beyond\n", "Shoal")
    assert [rules.allows(path) for path in ("/first", "/last", "/cut/here", "/cute", "/beyond")] == [
        False, False, True, True, True,
    ]  # fmt: skip
    assert "bytes" in rules.notes[0]


def test_a_file_of_500_kib_is_read_to_its_end() -> None:
    last = b"Disallow: /last"
    body = b"User-agent: *\n" + b"#" * (MAX_BYTES - len(b"User-agent: *\n\n") - len(last)) + b"\n" + last
    assert len(body) == MAX_BYTES
    assert not parse(body, "Shoal").allows("/last")
    assert parse(body, "Shoal").notes == ()


def test_one_endless_line_is_no_rule() -> None:
    assert parse(b"User-agent: *\nDisallow: /" + b"a" * MAX_BYTES, "Shoal").allows("/" + "a" * 8000)


# --- Crawl-delay and sitemaps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("1", 1.0), ("0.5", 0.5), (".5", 0.5), ("2.", 2.0), ("0", 0.0), ("300", 300.0), ("1e1", 10.0), ("5 # s", 5.0)],
)
def test_a_crawl_delay_is_seconds_with_a_fraction(value: str, seconds: float) -> None:
    rules = _rules(f"User-agent: *\nCrawl-delay: {value}\n")
    assert rules.crawl_delay_seconds == seconds
    assert rules.notes == ()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1e9", 300.0), ("301", 300.0), ("1e999", 300.0), ("9" * 300, 300.0),
        ("-1", 0.0), ("nan", 0.0), ("10s", 0.0), ("inf", 0.0), ("-inf", 0.0), ("", 0.0), ("1,5", 0.0), ("1_0", 0.0),
        ("٣", 0.0), ("0x10", 0.0), ("9" * 5000, 0.0),
    ],
)  # fmt: skip
def test_an_absurd_crawl_delay_is_capped_or_ignored_with_a_note(value: str, seconds: float) -> None:
    rules = _rules(f"User-agent: *\nCrawl-delay: {value}\n")
    assert rules.crawl_delay_seconds == seconds
    assert len(rules.notes) == 1
    assert "Crawl-delay" in rules.notes[0]


def test_the_crawl_delay_is_the_largest_of_our_merged_group() -> None:
    text = (
        "User-agent: Shoal\nCrawl-delay: 2\nDisallow: /x\n\nUser-agent: *\nCrawl-delay: 30\nDisallow:\n\n"
        "User-agent: a\nCrawl-delay: 3\nUser-agent: shoal\nDisallow: /y\n\nUser-agent: b\nCrawl-delay: bad\n"
    )
    assert _rules(text).crawl_delay_seconds == 3
    assert _rules(text).notes == ()
    assert _rules(text, "other").crawl_delay_seconds == 30


def test_sitemaps_belong_to_no_group_and_are_bounded() -> None:
    text = "Sitemap: http://a/1\nUser-agent: x\nDisallow: /\nsitemap: http://a/2\nSitemap:\nSitemap: http://a/1\n"
    assert _rules(text).sitemaps == ("http://a/1", "http://a/2")
    many = _rules("".join(f"Sitemap: http://a/{n}\n" for n in range(MAX_SITEMAPS + 5)))
    assert len(many.sitemaps) == MAX_SITEMAPS
    assert len(many.notes) == 1


# --- The form in the store ------------------------------------------------------------------------------------------


def test_rules_and_copies_come_back_from_the_store_as_they_were() -> None:
    rules = _rules("User-agent: *\nDisallow: /é*\nAllow: /é$\nCrawl-delay: 9999\nSitemap: http://a/ツ\n")
    again = Rules.unpack(rules.pack())
    assert again == rules
    assert hash(again) == hash(rules)
    assert (again.token, again.crawl_delay_seconds, again.sitemaps) == ("Shoal", 300, ("http://a/ツ",))
    assert again.notes == rules.notes != ()
    assert [again.allows("/é"), again.allows("/éa")] == [True, False]
    copy = Copy(rules, 12.5, '"tag"', "Sun, 06 Nov 1994 08:49:37 GMT")
    assert Copy.unpack(copy.pack()) == copy


def test_only_the_group_that_holds_is_kept() -> None:
    others = "".join(f"User-agent: bot{n}\nDisallow: /{'x' * 50}{n}\n" for n in range(1000))
    assert len(_rules(others + "User-agent: *\nDisallow: /a\nDisallow: /a\n").pack()) < 30


_GOOD = [1, "Shoal", [b"/a"], [b"*b"], 1.0, ["http://a/"], ["a note"]]


def _changed(at: int, value: Any) -> bytes:
    return msgspec.msgpack.encode([*_GOOD[:at], value, *_GOOD[at + 1 :]])


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xc1", b"\x00", b"garbage", b"\x91" * 5000, msgspec.msgpack.encode({"version": 1}),
        msgspec.msgpack.encode(_GOOD) + b"\0", msgspec.msgpack.encode(_GOOD)[:-1], msgspec.msgpack.encode(_GOOD[:-1]),
        msgspec.msgpack.encode([*_GOOD, 1]),
        _changed(0, 2), _changed(1, 7), _changed(2, ["/a"]), _changed(2, [b""]), _changed(2, [b"a"]),
        _changed(3, [b"/" * 20_000]), _changed(4, -1.0), _changed(4, 1e9), _changed(4, float("nan")),
        _changed(5, ["x" * 9000]), _changed(5, ["x"] * 1001), _changed(6, ["n"] * 11), _changed(2, [b"/"] * 3_000_000),
    ],
)  # fmt: skip
def test_what_is_not_the_kept_form_is_corrupt(data: bytes) -> None:
    assert Rules.unpack(msgspec.msgpack.encode(_GOOD)).allows("/c")
    with pytest.raises(StoreCorrupt, match="again"):
        Rules.unpack(data)
    with pytest.raises(StoreCorrupt):
        Copy.unpack(msgspec.msgpack.encode([1, 1.0, "", "", data]))


@pytest.mark.parametrize(
    "fields",
    [
        (2, 1.0, "", ""),
        (1, -1.0, "", ""),
        (1, float("nan"), "", ""),
        (1, 1.0, "a\r\nCookie: b", ""),
        (1, 1.0, "", "\0"),
    ],
)
def test_a_copy_that_no_worker_wrote_is_corrupt(fields: tuple[Any, ...]) -> None:
    with pytest.raises(StoreCorrupt):
        Copy.unpack(msgspec.msgpack.encode([*fields, ALLOW_ALL.pack()]))


@given(st.binary(max_size=200))
def test_any_other_bytes_are_corrupt_or_rules(data: bytes) -> None:
    for read in (Rules.unpack, Copy.unpack):
        try:
            read(data)
        except StoreCorrupt:
            continue


# --- The answer and its age: 2.3.1 and 2.4 --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (200, Meaning.RULES), (204, Meaning.RULES), (206, Meaning.RULES),
        (400, Meaning.UNAVAILABLE), (401, Meaning.UNAVAILABLE), (403, Meaning.UNAVAILABLE),
        (404, Meaning.UNAVAILABLE), (410, Meaning.UNAVAILABLE), (451, Meaning.UNAVAILABLE), (499, Meaning.UNAVAILABLE),
        (429, Meaning.UNREACHABLE), (500, Meaning.UNREACHABLE), (503, Meaning.UNREACHABLE), (599, Meaning.UNREACHABLE),
        (None, Meaning.UNREACHABLE), (999, Meaning.UNREACHABLE), (100, Meaning.UNREACHABLE), (0, Meaning.UNREACHABLE),
        (300, Meaning.UNREACHABLE), (304, Meaning.UNREACHABLE),
    ],
)  # fmt: skip
def test_a_status_opens_or_closes_the_host(status: int | None, meaning: Meaning) -> None:
    assert verdict(status) is meaning


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_five_redirects_are_followed_and_more_mean_that_there_is_no_file(status: int) -> None:
    assert [verdict(status, hops=hops) for hops in range(5)] == [Meaning.REDIRECT] * 5
    assert verdict(status, hops=5) is Meaning.UNAVAILABLE


def test_an_unchanged_file_is_confirmed_only_where_there_is_a_copy() -> None:
    copy = Copy(_rules("User-agent: *\nDisallow: /x\n"), 100.0, '"1"')
    assert verdict(304, has_copy=True) is Meaning.UNCHANGED
    assert settle(Meaning.UNCHANGED, now=500.0, copy=copy) == Copy(copy.rules, 500.0, '"1"')
    assert settle(Meaning.UNCHANGED, now=500.0) is None


def test_an_answer_becomes_the_copy_to_keep() -> None:
    body = b"User-agent: *\nDisallow: /x\n"
    old = Copy(DISALLOW_ALL, 1.0)
    new = settle(Meaning.RULES, now=2.0, copy=old, body=body, token="Shoal", etag='"2"', last_modified="x\r\nCookie: y")
    assert new == Copy(parse(body, "Shoal"), 2.0, '"2"', "")
    assert settle(Meaning.UNAVAILABLE, now=2.0, copy=old) == Copy(ALLOW_ALL, 2.0)
    assert settle(Meaning.UNREACHABLE, now=2.0, copy=old) is old
    assert settle(Meaning.UNREACHABLE, now=2.0) is None


def test_before_the_first_answer_nothing_but_robots_txt_is_asked() -> None:
    assert standing(None, token="Shoal", now=0.0) == (None, True)
    assert standing(None, token="Shoal", now=0.0, unreachable=True) == (DISALLOW_ALL, True)
    assert [DISALLOW_ALL.allows(path) for path in ("/", "/x?y", "", "/robots.txt")] == [False, False, False, True]


def test_a_copy_is_used_for_a_day_and_then_fetched_again() -> None:
    copy = Copy(_rules("User-agent: *\nDisallow: /x\n"), 1000.0)
    for unreachable in (False, True):
        last = 1000.0 + FRESH_SECONDS - 1
        assert standing(copy, token="Shoal", now=last, unreachable=unreachable) == (copy.rules, False)
    assert standing(copy, token="Shoal", now=1000.0 + FRESH_SECONDS) == (None, True)


def test_while_unreachable_a_copy_stays_in_use_for_30_days() -> None:
    copy = Copy(_rules("User-agent: *\nDisallow: /x\n"), 1000.0)
    end = 1000.0 + UNREACHABLE_SECONDS
    assert UNREACHABLE_SECONDS == 30 * 24 * 3600
    assert standing(copy, token="Shoal", now=1000.0 + FRESH_SECONDS, unreachable=True) == (copy.rules, True)
    assert standing(copy, token="Shoal", now=end - 1, unreachable=True) == (copy.rules, True)
    assert standing(copy, token="Shoal", now=end, unreachable=True) == (DISALLOW_ALL, True)


def test_a_copy_from_the_future_is_fetched_again() -> None:
    copy = Copy(ALLOW_ALL, 1000.0)
    assert standing(copy, token="Shoal", now=999.0) == (None, True)


def test_rules_for_another_token_are_never_applied() -> None:
    copy = Copy(_rules("User-agent: *\nDisallow: /x\n", "Other"), 0.0)
    assert standing(copy, token="Shoal", now=1.0) == (None, True)
    assert standing(copy, token="Other", now=1.0) == (copy.rules, False)
