"""The rules of RFC 9309 one by one, each with the section it comes from."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import SettingsError
from shoal.politeness.robots_parser import parse
from shoal.politeness.robots_pattern import Pattern, spell
from shoal.politeness.robots_rules import MAX_BYTES, MAX_NOTES, MAX_SITEMAPS, RobotsRule, Rules
from shoal.politeness.user_agent import check_token
from tests.unit.robots import rules_of, verdicts

# --- The rule that decides ------------------------------------------------------------------------------------------


def test_the_line_and_the_group_of_the_deciding_rule_are_stored() -> None:
    text = b"User-agent: a\nUser-agent: Bot/2\n\nDisallow: /x\nAllow: /x/*.html$\nDisallow: /x # again\n"
    rules = Rules.unpack(parse(text, "bot").pack())
    forbids, allows = rules.deciding_rule("/x/a"), rules.deciding_rule("/x/a.html")
    assert (str(forbids), forbids and forbids.line, forbids and forbids.group) == ("Disallow: /x", 4, "Bot/2")
    assert (str(allows), allows and allows.line) == ("Allow: /x/*.html$", 5)
    assert rules.deciding_rule("/y") is None
    assert rules.deciding_rule("/robots.txt") is None


def test_rules_that_an_older_version_stored_are_read_without_lines() -> None:
    stored = msgspec.msgpack.encode((1, "bot", (b"/x",), (), 0.0, (), ()))
    assert Rules.unpack(stored).deciding_rule("/x") == RobotsRule(False, "/x", 0, "")


_PATHS = st.text(alphabet="/ab*$?=%2Fé", max_size=8).map(lambda path: "/" + path)


@given(rules=st.lists(st.tuples(st.booleans(), _PATHS), max_size=6), url=_PATHS)
def test_the_deciding_rule_agrees_with_the_verdict(rules: list[tuple[bool, str]], url: str) -> None:
    lines = [f"{'Allow' if allow else 'Disallow'}: {path}" for allow, path in rules]
    parsed = parse("\n".join(["User-agent: *", *lines]).encode(), "bot")
    rule = parsed.deciding_rule(url)
    assert parsed.allows(url) is (rule is None or rule.allow)


# --- Groups: 2.1 and 2.2.1 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["Shoal", "shoal_bot", "A-b_C", "x" * 64])
def test_a_product_token_of_letters_underscores_and_hyphens_is_accepted(token: str) -> None:
    assert check_token(token) == token


@pytest.mark.parametrize("token", ["", "Shoal/1.0", "Shoal 2", "bot1", "*", "Fischschwärme", "a\n", "x" * 65, None])
def test_any_other_product_token_is_refused(token: Any) -> None:
    with pytest.raises(SettingsError, match="product token"):
        check_token(token)


@pytest.mark.parametrize("line", ["Shoal", "SHOAL", "shoal", "Shoal/1.0", "Shoal Crawler", "shoal # ours", "\tShoal "])
def test_our_group_is_found_whatever_its_case(line: str) -> None:
    assert verdicts(f"User-agent: {line}\nDisallow: /x\n", "/x", "/y") == [False, True]


@pytest.mark.parametrize("line", ["Sho", "Shoal-Images", "Shoal2", "xShoal", "Shoalx", "", "NotShoal Shoal"])
def test_a_token_that_only_resembles_ours_is_not_ours(line: str) -> None:
    assert verdicts(f"User-agent: {line}\nDisallow: /x\n", "/x") == [True]


def test_groups_for_our_token_merge_and_replace_the_groups_for_all_robots() -> None:
    text = (
        "User-agent: shoal\nDisallow: /a\n\nUser-agent: *\nDisallow: /c\n\n"
        "User-agent: other\nDisallow: /d\n\nUser-agent: SHOAL\nDisallow: /b\n"
    )
    assert verdicts(text, "/a", "/b", "/c", "/d") == [False, False, True, True]


def test_without_a_group_for_our_token_all_groups_for_all_robots_apply() -> None:
    text = "User-agent: *\nDisallow: /a\nUser-agent: other\nDisallow: /b\nUser-agent: *\nDisallow: /c\n"
    assert verdicts(text, "/a", "/b", "/c") == [False, True, False]


def test_a_group_for_our_token_without_rules_allows_everything() -> None:
    assert verdicts("User-agent: *\nDisallow: /\n\nUser-agent: Shoal\n", "/x") == [True]
    assert verdicts("User-agent: *\nDisallow: /\n\nUser-agent: Shoal\nDisallow:\n", "/x") == [True]


def test_several_user_agent_lines_share_a_group_and_blank_lines_do_not_end_it() -> None:
    text = "User-agent: a\n\n# words\n\nUser-agent: Shoal\n\n\nDisallow: /x\n\n\nDisallow: /y\n"
    assert verdicts(text, "/x", "/y") == [False, False]
    assert verdicts(text, "/x", "/y", token="a") == [False, False]


def test_rules_before_the_first_user_agent_line_are_ignored() -> None:
    assert verdicts("Disallow: /\nCrawl-delay: 9\nUser-agent: *\nDisallow: /x\n", "/y", "/x") == [True, False]
    assert rules_of("Crawl-delay: 9\nUser-agent: *\nDisallow: /x\n").crawl_delay_seconds == 0


@pytest.mark.parametrize("line", ["Sitemap: http://a/", "Crawl-delay: 2", "Host: a", "unknown: x", "no words", "<p>"])
def test_other_lines_neither_end_nor_split_a_group(line: str) -> None:
    text = f"User-agent: a\n{line}\nUser-agent: Shoal\n{line}\nDisallow: /x\n{line}\nDisallow: /y\n"
    for token in ("a", "Shoal"):
        assert verdicts(text, "/x", "/y", "/z", token=token) == [False, False, True]


# --- Precedence, spelling and special characters: 2.2.2 and 2.2.3 ---------------------------------------------------


def test_the_longest_match_wins_in_any_order() -> None:
    rules = ["Allow: /a/b", "Disallow: /a", "Disallow: /a/b/c"]
    for order in (rules, rules[::-1]):
        text = "User-agent: *\n" + "\n".join(order)
        assert verdicts(text, "/a", "/a/b", "/a/b/c", "/") == [False, True, False, True]


def test_the_longest_of_several_wildcard_rules_wins_in_any_order() -> None:
    rules = ["Disallow: /*a", "Allow: /*ab", "Disallow: /*abc$", "Allow: /*a*b*c*d"]
    for order in (rules, rules[::-1]):
        text = "User-agent: *\n" + "\n".join(order)
        assert verdicts(text, "/a", "/ab", "/abc", "/abcd", "/x") == [False, True, False, True, True]


@pytest.mark.parametrize("path", ["/x", "/*x", "/x$", "*"])
def test_between_equal_rules_allow_wins(path: str) -> None:
    for order in (f"Allow: {path}\nDisallow: {path}", f"Disallow: {path}\nAllow: {path}"):
        assert verdicts(f"User-agent: *\n{order}\n", "/x") == [True]


def test_a_prefix_and_a_wildcard_of_the_same_length_are_equal_too() -> None:
    assert verdicts("User-agent: *\nDisallow: /ab\nAllow: /*b\n", "/ab") == [True]
    assert verdicts("User-agent: *\nAllow: /ab\nDisallow: /*b\n", "/ab") == [True]


def test_the_length_of_a_match_is_counted_in_encoded_bytes() -> None:
    # "/%C3%A9" has seven octets, "/*abc" five.
    assert verdicts("User-agent: *\nDisallow: /é\nAllow: /*abc\n", "/éabc") == [False]


def test_paths_are_case_sensitive_and_robots_txt_is_always_allowed() -> None:
    text = "User-agent: *\nDisallow: /X\nDisallow: /robots.txt\nDisallow: /*.txt$\n"
    assert verdicts(text, "/x", "/X", "/robots.txt", "/robots%2Etxt", "/a/robots.txt") == [
        True, False, True, True, False,
    ]  # fmt: skip


def test_an_empty_path_is_matched_as_the_root() -> None:
    assert verdicts("User-agent: *\nDisallow: /$\n", "", "/", "?a", "/#f", "/a") == [False, False, True, False, True]


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
def test_rule_and_path_are_normalized_before_matching(rule: str, path: str) -> None:
    for left, right in ((rule, path), (path, rule), (rule, rule), (path, path)):
        assert verdicts(f"User-agent: *\nDisallow: {left}$\n", right) == [False], (left, right)


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
        ("/*b%3Dc", "/a?b=c"),
        ("/*%3D$", "/a?b="),
        ("/*%26*c$", "/a?b&c"),
    ],
)
def test_separators_differ_from_their_percent_encoding(rule: str, path: str) -> None:
    assert verdicts(f"User-agent: *\nDisallow: {rule}\n", path) == [True]


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
        ("/*%3D$", "/a%3D"),
        ("/*%3D$", "/a="),
        ("/*%3D$", "/a?b%3D"),
        ("/*a?b=$", "/a?b="),
    ],
)
def test_text_after_a_star_matches_in_the_path_and_in_the_query(rule: str, path: str) -> None:
    assert verdicts(f"User-agent: *\nDisallow: {rule}\n", path) == [False]


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
def test_special_characters_work_as_rfc_9309_section_2_2_3_says(rule: str, matching: str, others: str) -> None:
    rules = rules_of(f"User-agent: *\nDisallow: {rule}\n")
    assert [path for path in matching.split() if rules.allows(path)] == []
    assert [path for path in others.split() if not rules.allows(path)] == []


def test_allowing_the_index_page_allows_its_folder_and_nothing_more() -> None:
    text = "User-agent: *\nDisallow: /\nAllow: /a/index.html\nAllow: /b/xindex.html\n"
    assert verdicts(text, "/a/", "/a/index.html", "/a/x", "/a", "/b/") == [True, True, False, False, False]


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
def test_the_matcher_agrees_with_a_simple_reference_matcher(rule: str, text: str) -> None:
    text = "/" + text
    assert Pattern(b"/" + rule.encode()).matches(text, len(text)) == _matches_slowly("/" + rule, text)


class _Counted(str):
    """Text that counts the symbols that are looked at."""

    steps = 0

    def find(self, piece: str, start: int = 0, end: int | None = None) -> int:  # type: ignore[override]
        end = len(self) if end is None else min(end, len(self))
        index = super().find(piece, start, end)
        self.steps += 1 + (max(0, end - start) if index < 0 else index + len(piece) - start)
        return index


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
    assert verdicts(text, "/x", "/x/y") == [False, True]


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
def test_valid_lines_are_used_whatever_surrounds_them(body: bytes) -> None:
    rules = parse(body, "Shoal")
    assert [rules.allows("/x"), rules.allows("/y")] == [False, True]


def test_latin_1_bytes_match_their_percent_encoding() -> None:
    rules = parse(b"User-agent: *\nDisallow: /caf\xe9\n", "Shoal")
    assert [rules.allows("/caf%E9"), rules.allows("/caf%C3%A9")] == [False, True]


def test_html_instead_of_text_allows_everything_and_is_reported() -> None:
    rules = rules_of("<html><head><title>404: not found</title></head><body><a href='/x'>x</a></body></html>")
    assert rules.allows("/x")
    assert rules.notes == ("it looks like HTML",)


def test_a_sentence_is_not_a_rule() -> None:
    assert verdicts("User-agent: *\nDisallow all of it\nDisallow x\nDisallow: x\n", "/all", "/x") == [True, True]


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
    assert not rules_of(f"User-agent: *\nDisallow: {rule}\n").allows(path)


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


def test_one_endless_line_is_not_a_rule() -> None:
    assert parse(b"User-agent: *\nDisallow: /" + b"a" * MAX_BYTES, "Shoal").allows("/" + "a" * 8000)


# --- Crawl-delay and sitemaps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("1", 1.0), ("0.5", 0.5), (".5", 0.5), ("2.", 2.0), ("0", 0.0), ("300", 300.0), ("1e1", 10.0), ("5 # s", 5.0)],
)
def test_a_crawl_delay_is_seconds_with_a_fraction(value: str, seconds: float) -> None:
    rules = rules_of(f"User-agent: *\nCrawl-delay: {value}\n")
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
def test_an_absurd_crawl_delay_is_capped_or_ignored_and_reported(value: str, seconds: float) -> None:
    rules = rules_of(f"User-agent: *\nCrawl-delay: {value}\n")
    assert rules.crawl_delay_seconds == seconds
    assert len(rules.notes) == 1
    assert "Crawl-delay" in rules.notes[0]


def test_the_crawl_delay_is_the_largest_of_our_merged_group() -> None:
    text = (
        "User-agent: Shoal\nCrawl-delay: 2\nDisallow: /x\n\nUser-agent: *\nCrawl-delay: 30\nDisallow:\n\n"
        "User-agent: a\nCrawl-delay: 3\nUser-agent: shoal\nDisallow: /y\n\nUser-agent: b\nCrawl-delay: bad\n"
    )
    assert rules_of(text).crawl_delay_seconds == 3
    assert rules_of(text).notes == ()
    assert rules_of(text, "other").crawl_delay_seconds == 30


def test_sitemaps_belong_to_no_group_and_are_bounded() -> None:
    text = "Sitemap: http://a/1\nUser-agent: x\nDisallow: /\nsitemap: http://a/2\nSitemap:\nSitemap: http://a/1\n"
    assert rules_of(text).sitemaps == ("http://a/1", "http://a/2")
    many = rules_of("".join(f"Sitemap: http://a/{n}\n" for n in range(MAX_SITEMAPS + 5)))
    assert len(many.sitemaps) == MAX_SITEMAPS
    assert len(many.notes) == 1
