"""HTML pages: their text, metadata and links, and that no page takes too much time or memory."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from random import Random

import ada_url
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidUrl
from shoal.parse import html, html_limits
from shoal.parse.html import FOLLOW, Link, Parsed, parse, text_hash
from shoal.parse.html_limits import tame
from shoal.parse.meta_refresh import refresh_of
from shoal.parse.text_layout import replace_tags
from shoal.urls.canonical import MAX_URL_BYTES, canonical

# Public vectors, beside the checkout where they are kept.
WPT = Path(__file__).parents[3] / "shared" / "data" / "wpt"
URL = "http://a.example/dir/page.html"


def _page(markup: str | bytes, **options: object) -> Parsed:
    body = markup.encode() if isinstance(markup, str) else markup
    return parse(body, url=URL, **{"content_type": "text/html; charset=utf-8", **options})  # type: ignore[arg-type]


def _urls(markup: str, **options: object) -> list[str]:
    return [link.url for link in _page(markup, **options).links]


def _wpt(name: str) -> Path:
    if not (WPT / name).exists():
        pytest.skip(f"{name} is absent: put the vectors of web-platform-tests beside the checkout")
    return WPT / name


def test_all_parts_of_a_page_are_parsed() -> None:
    page = _page(
        """<!DOCTYPE html><html lang="en-GB"><head><title> Fish &amp;
        chips </title><meta name="Description" content="What&#10;we eat"><link rel="canonical" href="/fish#top"></head>
        <body><h1>Fish</h1><p>One <b>two</b></p></body></html>"""
    )
    assert page.title == "Fish & chips"
    assert page.description == "What we eat"
    assert page.text == "Fish\nOne two"
    assert page.canonical == "http://a.example/fish"
    assert page.language == "en-GB"
    assert page.charset == "utf-8"
    assert not page.reduced


def test_text_excludes_content_that_readers_do_not_see() -> None:
    page = _page(
        "<title>t</title><p>a</p><p>b</p><ul><li>1</li><li>2</li></ul>H<sub>2</sub>O 10<sup>3</sup> long<wbr>word"
        "<script>x()</script><style>y</style><noscript><p>n</p><script>z</script></noscript><template>q<b>r</b></template>"
        "<iframe>i</iframe><!-- c --><table><tr><td>c1</td><td>c2</td></tr></table>a\u00a0\n\t b<br>c"
    )
    assert page.text == "a\nb\n1\n2\nH2O 103 longword\nc1\tc2\na b\nc"


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<span>H</span>ello <b>wor</b>ld", "Hello world"),
        ("See <a href=x>foo</a>. <em>Bar</em>, (<code>x</code>)", "See foo. Bar, (x)"),
        ('<SPAN CLASS="drop">H</SPAN>ello<BR>you', "Hello\nyou"),
        ("<font size=+1 color='red'>O</font>nce <i title='a > b'>u</i>pon", "Once upon"),
        ('x<abbr title="it\'s">y</abbr>z', "xyz"),
    ],
)
def test_inline_elements_do_not_split_words(markup: str, text: str) -> None:
    assert _page(markup).text == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<h1>One</h1><p>two three</p>four<div>five</div>six", "One\ntwo three\nfour\nfive\nsix"),
        ("<div><div><p>a</p>\n\n</div></div>\n<p>\n b\n c</p>", "a\nb c"),
        ("<ul><li>one<li>two <b>too</b><ul><li>three</ul></ul>four", "one\ntwo too\nthree\nfour"),
        ("<dl><dt>term<dd>meaning</dl>", "term\nmeaning"),
        ("<p>a<br>b<hr>c", "a\nb\nc"),
        ("<P ALIGN=center>a<P>b<UL><LI>c</UL>", "a\nb\nc"),
        ("<select><option>a<option>b</select>", "a\nb"),
        ("a\u2028b\x85c\u00a0d", "a b c d"),
    ],
)
def test_block_elements_are_on_separate_lines(markup: str, text: str) -> None:
    assert _page(markup).text == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<table><tr><th>a</th><th>b</th></tr>\n<tr><td>1</td>\n<td>2</td></tr></table>z", "a\tb\n1\t2\nz"),
        ("<body><table><tr><td><td>x<td><td>y<tr><td>1<td>&nbsp;<td>3</table>", "\tx\t\ty\n1\t\t3"),
        ("t<table class=c><tbody><tr><td><p>a</p></td><td><b>b</b>c</td></tr></tbody></table>", "t\na\tbc"),
        ("<TABLE><TR><TD>a<TD>b</TABLE>c", "a\tb\nc"),
    ],
)
def test_rows_of_a_table_are_lines_with_tabs_between_cells(markup: str, text: str) -> None:
    assert _page(markup).text == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>a<pre>\nif x:\n    <span>ret</span>urn\n\n</pre>b", "a\nif x:\n    return\nb"),
        ("<pre>a<br>  b<div>  c</div>\n<div>d</div></pre>", "a\n  b\n  c\nd"),
        ("<pre>  one <a href=x>two</a>\n\n\tthree</pre>", "  one two\n\n\tthree"),
        ("<table><tr><td>1<td><pre>x\n y</pre></table>", "1\tx\n y"),
    ],
)
def test_preformatted_text_keeps_its_lines_and_spaces(markup: str, text: str) -> None:
    assert _page(markup).text == text


def test_tags_in_comments_scripts_and_values_are_ignored() -> None:
    page = _page(
        "<!-- span class=x></span --><p>a</p><!-- <b x--><i>b</i><!--<p>--><script>'<p>' < '</b>'</script>"
        '<a title="<p>it\'s" href="/c">c</a><a href="/d" title=\'<b class="x">\'>d</a><!-- <br/-->e'
    )
    assert page.text == "a\nbcde"
    assert [link.url for link in page.links] == ["http://a.example/c", "http://a.example/d"]


def test_a_page_with_a_long_script_keeps_its_elements() -> None:
    data = json.dumps({str(n): 'it\'s a "word" or two' for n in range(6_000)}).encode()
    for tag, end in ((b"<script type='application/json'>", b"</script>"), (b"<STYLE>", b"</STYLE>")):
        page = b"<p>one<p>two" + tag + data + end + b"<div>three</div>"
        assert tame(page) == (page, False, 0)
        assert _page(page).text == "one\ntwo\nthree"
    # The same bytes as attributes of a tag, behind a tag that is in a value: a crowd of attributes.
    for disguise in (b"<p a='<script>' ", b'<p a="<script>" ', b"<svg><script><p ", b"<script></script><p <script>"):
        assert tame(disguise + b"x='y' " * 20_000)[1], disguise


def test_the_title_is_the_first_title_of_the_page_and_not_one_in_svg() -> None:
    assert _page("<body><svg><title>arrow</title></svg><title>late</title><title>later</title>").title == "late"
    assert _page("<title></title><body><title>x</title>").title == ""
    assert len(_page("<title>" + "x" * 100_000).title) == html.MAX_LINE


def test_the_language_is_taken_from_the_root_element_or_else_from_the_pragma() -> None:
    pragma = '<meta http-equiv="Content-Language" content="de">'
    assert _page(f"<html lang=fr>{pragma}").language == "fr"
    assert _page(pragma).language == "de"
    assert _page('<meta http-equiv="content-language" content="de, en">').language == ""


def test_links_are_absolute_canonical_unique_and_in_order() -> None:
    markup = """<a href="b.html">1</a><a href="/c?d=1#x">2</a><a href="b.html#y">3</a><a href="./b.html">4</a>
    <a href="HTTP://B.example:80/../q">5</a><area href="../up"><iframe src="//c.example/f"></iframe>
    <a href=" https://d.example/ sp ace ">6</a><a name=x>7</a><a href="#here">8</a><a href="">9</a>"""
    assert _urls(markup) == [
        "http://a.example/dir/b.html",
        "http://a.example/c?d=1",
        "http://b.example/q",
        "http://a.example/up",
        "http://c.example/f",
        "https://d.example/%20sp%20ace",
    ]


def test_urls_that_cannot_be_visited_are_not_links() -> None:
    hrefs = [
        "javascript:void(0)",
        "JavaScript:x",
        "mailto:a@b.example",
        "tel:1",
        "data:text/html,x",
        "file:///etc/passwd",
    ]
    hrefs += ["gopher://a/", "http://", "http://[::1", "blob:http://a/x", "about:blank", "x" * (MAX_URL_BYTES + 1)]
    assert _urls("".join(f'<a href="{href}">x</a>' for href in hrefs)) == []


def test_relations_are_followed_as_configured() -> None:
    markup = """<link rel=next href=/2><link rel=canonical href=/c><link rel="ALTERNATE nofollow" hreflang=de href=/de>
    <link rel="alternate stylesheet" href=/s.css><link rel=stylesheet href=/t.css><frameset><frame src=/f></frameset>"""
    assert _urls(markup) == ["http://a.example/2", "http://a.example/f"]
    relations = frozenset({"canonical", "alternate"})
    links = _page(markup, follow=relations).links
    assert [(link.url, link.kind) for link in links] == [
        ("http://a.example/c", "canonical"),
        ("http://a.example/de", "alternate"),
    ]
    assert links[1].nofollow
    assert _urls("<a href=x>", follow=frozenset()) == []


def test_rel_is_a_list_of_tokens() -> None:
    links = _page(
        '<a href=1 rel="nofollow">a</a><a href=2 rel="nofollower">b</a><a href=3 rel="UGC\tNoFollow">c</a>'
        '<a href=4 rel="no follow">d</a><a href=5 rel>e</a>'
    ).links
    assert [link.nofollow for link in links] == [True, False, True, False, False]
    assert links[2].rel == ("ugc", "nofollow")


def test_a_url_linked_with_and_without_nofollow_is_followed() -> None:
    for hrefs in ("<a href=x rel=nofollow></a><a href=x></a>", "<a href=x></a><a href=./x rel=nofollow></a>"):
        assert [link.nofollow for link in _page(hrefs).links] == [False]
    assert _page("<a href=x rel=nofollow></a><a href=./x></a>").links == (Link("http://a.example/dir/x", "a"),)


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<base href=/other/><a href=x>", "http://a.example/other/x"),
        ("<base href=/other/file><a href=x>", "http://a.example/other/x"),
        ("<base href=//b.example/y/><a href=x>", "http://b.example/y/x"),
        ("<base href=/1/><base href=/2/><a href=x>", "http://a.example/1/x"),
        ("<base target=_top><base href=/2/><a href=x>", "http://a.example/2/x"),
        ("<a href=x><base href=/late/>", "http://a.example/late/x"),
        ("<base href=''><a href=x>", "http://a.example/dir/x"),
        ("<base href='http://['><a href=x>", "http://a.example/dir/x"),
        ("<base href='data:/x'><a href=x>", "http://a.example/dir/x"),
        ("<base href='javascript:/x'><a href=x>", "http://a.example/dir/x"),
        ("<base href=/other/><a href='#x'>", "http://a.example/other/"),
        ("<base href=?q=a/b><a href=x>", "http://a.example/dir/x"),
    ],
)
def test_a_base_element_applies_to_every_link_and_an_invalid_one_is_ignored(markup: str, expected: str) -> None:
    assert _urls(markup) == [expected]


def test_queries_are_encoded_in_the_encoding_of_their_page() -> None:
    body = '<a href="/ä?q=ä&r=%E4#ä">x</a><a href="?я=1">y</a>'.encode("windows-1251", "xmlcharrefreplace")
    urls = [link.url for link in parse(body, url=URL, content_type="text/html; charset=windows-1251").links]
    assert urls == ["http://a.example/%C3%A4?q=%26%23228%3B&r=%E4", "http://a.example/dir/page.html?%FF=1"]
    assert _urls('<a href="?q=я">') == ["http://a.example/dir/page.html?q=%D1%8F"]


@given(st.from_regex(r"[A-Za-z0-9_.~/?=&+%:#@ -]{0,30}", fullmatch=True))
def test_a_simple_link_is_resolved_like_the_url_parser_does(href: str) -> None:
    for base in (URL, "http://a.example", "https://u@a.example:8443/x/y?z=/w"):
        # Some entities need no semicolon: &lt is a <.
        body = f'<a href="{href.replace("&", "&amp;")}">'.encode()
        try:
            expected = canonical(ada_url.join_url(base, href)).url if href.partition("#")[0] else None
        except (ValueError, InvalidUrl):
            expected = None
        urls = [link.url for link in parse(body, url=base).links]
        assert urls == ([expected] if expected else [])


@given(st.lists(st.sampled_from(["..", ".", "", "a", "b.c", "?d=e", "..f", "#g"]), max_size=12))
def test_dot_segments_are_resolved_like_the_url_parser_does(segments: list[str]) -> None:
    href = "/".join(segments)
    for base in ("http://a.example/1/2//3/4.html?x=/y", "http://a.example/"):
        try:
            expected = [ada_url.join_url(base, href).partition("#")[0]] if href.partition("#")[0] else []
        except ValueError:
            expected = []
        expected = [url for url in expected if url.startswith("http://") and not url.startswith("http://.")]
        urls = [link.url for link in parse(f'<a href="{href}">'.encode(), url=base).links]
        assert [url for url in urls if not url.startswith("http://.")] == expected


def test_a_link_is_judged_by_all_its_occurrences_regardless_of_fragments() -> None:
    markup = "<a href=x#1 rel=nofollow></a><a href=x#2 rel='nofollow ugc'></a><a href=x#3></a><a href=x#4 rel=nofollow>"
    assert _page(markup).links == (Link("http://a.example/dir/x", "a"),)
    markup = "<a href='x #1'></a><a href='x '></a><a href='x#2'></a><a href='x #3'></a>"
    assert _urls(markup) == ["http://a.example/dir/x%20", "http://a.example/dir/x"]
    assert _urls("<svg><a xlink:href=/no>1</a><a xlink:href=/no href=/yes>2</a></svg><a href>3</a>") == [
        "http://a.example/yes"
    ]


@given(st.text(alphabet='ab/.?#:@[]%\\ \t\u00e4\ufffd<>"', max_size=20))
def test_every_link_is_canonical(href: str) -> None:
    body = f"<a href='{href}'>".encode()
    for link in parse(body, url=URL).links:
        # Names made of dots are hosts to the parser, and none to Shoal: the frontier refuses them.
        if not link.url.partition("://")[2].startswith("."):
            assert canonical(link.url).url == link.url


def test_meta_refresh_is_read_as_browsers_read_it() -> None:
    cases = json.loads(_wpt("meta_refresh.json").read_text())["tests"]
    assert len(cases) == 73
    wrong: list[tuple[object, ...]] = []
    for case in cases:
        refresh = refresh_of(case["input"])
        expected = case["expected"]
        # The URL parser takes tabs and line ends out of a target, so the vectors do.
        result = (
            []
            if refresh is None
            else [refresh[0], "".join(refresh[1].split("\t")).replace("\n", "").strip() or "__filename__"]
        )
        if result != expected:
            wrong.append((case["input"], expected, refresh))
        page = _page(b'<meta http-equiv=Refresh content="%s">' % case["input"].replace('"', "&quot;").encode())
        target = expected[1] if expected and expected[1] != "__filename__" else ""
        if page.refresh != (ada_url.join_url(URL, target) if target else ""):
            wrong.append((case["input"], target, page.refresh))
    assert not wrong


def test_a_refresh_to_the_page_itself_or_inside_noscript_is_ignored() -> None:
    assert _page("<meta http-equiv=refresh content='5; url=page.html#x'>").refresh == ""
    assert _page("<noscript><meta http-equiv=refresh content='0; url=/nojs'></noscript>").refresh == ""
    assert _page("<meta http-equiv=refresh content='0; url=javascript:x'>").refresh == ""
    first = _page("<meta http-equiv=refresh content=x><meta http-equiv=refresh content='3;/a'>" * 2)
    assert (first.refresh, first.refresh_seconds) == ("http://a.example/a", 3)
    assert refresh_of("9" * 5000) == (999_999_999, "")
    assert _page("<base href=/b/><meta http-equiv=refresh content='0;c'>").refresh == "http://a.example/b/c"


def test_noscript_links_count_since_scripts_do_not_run() -> None:
    assert _urls(
        "<head><noscript><img src=x></noscript><link rel=next href=/2></head><noscript><a href=/3></noscript>"
    ) == [
        "http://a.example/2",
        "http://a.example/3",
    ]


def test_links_in_templates_comments_and_scripts_are_ignored() -> None:
    assert _urls(
        "<template><a href=1></a></template><!--<a href=2>--><script>'<a href=3>'</script><svg><a href=4>x</a></svg>"
    ) == ["http://a.example/dir/4"]


# What building a tree would take minutes or gigabytes for. Each is a few megabytes at most, made when it is used.
BOMBS = {
    "nested blocks": lambda: b"<div>" * 100_000,
    "nested blocks, closed": lambda: b"<div>" * 100_000 + b"</div>" * 100_000,
    "nested inline elements": lambda: b"<span>" * 300_000,
    "nested formatting": lambda: b"<b>" * 100_000,
    "nested tables": lambda: b"<table><tr><td>" * 50_000,
    "nested lists": lambda: b"<ul><li>" * 100_000,
    "nested unknown elements": lambda: b"<x-y>" * 200_000,
    "copies of formatting": lambda: b"<p>" + b"".join(b"<font a=%d>" % n for n in range(3000)) + b"<p>x" * 3000,
    "blocks behind end tags of nothing": lambda: b"<div><object></div></object>" * 60_000,
    "blocks among end tags of nothing": lambda: b"<div></x>" * 60_000,
    "inline elements before end tags of nothing": lambda: b"<span>" * 6_000 + b"</x>" * 300_000,
    "attributes": lambda: b"<p " + b" ".join(b"%x" % n for n in range(500_000)) + b">",
    "attributes with angles": lambda: b"<p " + b"<q ".join(b"%x" % n for n in range(500_000)) + b">",
    "attributes behind quotes": lambda: b'<a x=">" ' + b" ".join(b"%x" % n for n in range(100_000)) + b">",
    "less-than signs": lambda: b"<" * 3_000_000,
    "ampersands": lambda: b"&" * 3_000_000,
    "comments": lambda: b"<!--" * 500_000,
    "NUL": lambda: b"\0" * 1_000_000,
    "unclosed quote": lambda: b'<a href="' * 300_000,
}


# Formatting that stays open behind what looks like its end tag, and blocks that copy it.
NO_ENDS = (
    b"<font a=%d></x>",
    b"<font a=%d><!--</font>-->",
    b"<font a=%d><style></font></style>",
    b"<font a=%d><table></font></table>",
    b'<font a="%d</font>">',
    b'<FONT A="<%d"></x></x>',
)


@pytest.mark.parametrize("formatting", NO_ENDS)
def test_unmatched_end_tags_do_not_hide_repeated_formatting_elements(formatting: bytes) -> None:
    body = b"<p>" + b"".join(formatting % n for n in range(6000)) + b"<p>x</x>" * 6000
    assert tame(body)[1]


@pytest.mark.full
def test_a_page_below_the_limits_makes_at_most_the_allowed_formatting_copies() -> None:
    body = b"<p>" + b"".join(b"<font a=%d>" % n for n in range(998)) + b"<p>x" * 999
    assert not tame(body)[1]
    assert len(html.tree_of(body).tags("font")) <= html_limits.MAX_COPIES
    # Three of a kind stay open, as the standard says: it is what clears pages of many tags.
    same = b"<p>" + b"<font a=1>" * 998 + b"<p>x" * 999
    assert len(html.tree_of(same).tags("font")) < 998 + 4 * 999


@pytest.mark.parametrize("name", BOMBS)
def test_an_html_bomb_is_parsed_in_bounded_time_and_its_links_are_found(name: str) -> None:
    page = _page(b"<title>t</title><a href=/first>x</a>" + BOMBS[name]())
    assert page.title == "t"
    assert page.links[0].url == "http://a.example/first"


def test_simplified_pages_keep_their_links_text_and_meta_elements() -> None:
    body = (
        b"<title>t</title><meta name=robots content=nofollow>"
        + b"<object>" * 100_000
        + b"w<p>x</p><A HREF=/y>z</A><script>s</script>"
    )
    page = _page(body)
    assert page.reduced
    assert (page.title, page.text, page.links[0].url) == ("t", "w\nx\nz", "http://a.example/y")
    assert page.robots.nofollow


def test_large_ordinary_pages_are_not_simplified() -> None:
    row = b"<tr><td><a href=/r/%d>row</a><td class=c><p>text <b>bold</b> <i>it</i><br><img src=x>"
    assert not tame(b"<table>" + b"".join(row % n for n in range(20_000)) + b"</table>")[1]
    item = b"<li class=t><a href=/r/%d><code class=k%d><span>x</span></code></a><ul><li>y</li></ul></li>"
    assert not tame(b"<ul>" + b"".join(item % (n, n % 10) for n in range(10_000)) + b"</ul>")[1]
    assert not tame(b"<ul>" + b"<li>item <p>one <p>two" * 30_000)[1]
    assert not tame(b"<img src='data:image/png;base64," + base64.b64encode(Random(7).randbytes(200_000)) + b"'>")[1]
    assert not tame(b"<script>" + b"var a = 1; " * 20_000 + b"</script>")[1]


@pytest.mark.full
def test_of_a_million_links_the_first_hundred_thousand_are_kept_and_the_rest_counted() -> None:
    page = _page(b"".join(b"<a href=/%d>" % n for n in range(1_000_000)))
    assert len(page.links) == html.MAX_LINKS
    assert page.links[-1].url == f"http://a.example/{html.MAX_LINKS - 1}"
    assert page.links_dropped == 1_000_000 - html.MAX_LINKS
    assert page.reduced


def test_endless_repeats_of_one_link_are_one_link() -> None:
    page = _page(b"<a href=/x>y" * 300_000)
    assert [link.url for link in page.links] == ["http://a.example/x"]
    assert page.links_dropped == 0


def test_nul_and_lone_surrogates_are_replaced_by_storable_characters() -> None:
    body = b"<title>a\0b \xed\xa0\x80 &#xD800; &#0;</title><p>\0x\xff\xed\xb0\x80</p>"
    body += b"<a href='/\0\xed\xa0\x80&#xDFFF;'>y</a>"
    page = _page(body)
    for text in (page.title, page.text, *(link.url for link in page.links)):
        text.encode()
        assert "\0" not in text
    assert len(page.links) == 1


@given(st.binary(max_size=400))
def test_any_bytes_can_be_parsed(body: bytes) -> None:
    page = parse(body, url=URL)
    (page.text + page.title).encode()


PIECES = (
    "<a href=x>|</a>|<p>|<b>|<table>|<td>|</table>|<noscript>|</noscript>|<script>|</script>|<style>|</style>|<svg>|"
    "<title>|</title>|<template>|</template>|<iframe src=y>|</iframe>|<frameset>|<sub>|</sub>|<select>|<option>|<body>|"
    "<html>|<base href=z>|<math>|<textarea>|<plaintext>|<!--|-->|<meta name=robots content=none>|text|&amp;|<"
)


@given(st.lists(st.sampled_from(PIECES.split("|")), max_size=30))
def test_any_mixture_of_tags_can_be_parsed(pieces: list[str]) -> None:
    page = _page("".join(pieces))
    page.text.encode()


def test_a_page_with_an_invalid_url_has_no_links() -> None:
    for url in ("", "not a url", "\ud800", "javascript:x"):
        assert parse(b"<a href=x>", url=url).links == ()
    assert [link.url for link in parse(b"<a href=http://b.example/>", url="").links] == []
    assert frozenset({"a", "next"}) <= FOLLOW


@pytest.mark.parametrize(
    ("markup", "links", "text"),
    [
        ('<a href="/?q=<b>x</b>">y</a>', ["/?q=%3Cb%3Ex%3C/b%3E"], "y"),
        ("<a href='/?q=<p>x</p>&amp;r=1' title=\"it's <i>\">y<b>z</b></a>", ["/?q=%3Cp%3Ex%3C/p%3E&r=1"], "yz"),
        ('<p title="<td>">a<p>b</p><a href=/c>c</a>', ["/c"], "a\nb\nc"),
        ('<script>x = "<a href=/no>"; if (a<b) y = "<b>";</script><p>a <b>b</b>', [], "a b"),
        ('<a href="/open?<b>x</b>', [], None),
        ('<a title="x > y" href="/?q=<b>">z</a>', ["/?q=%3Cb%3E"], "z"),
        ('a > b <a href="/?q=<img><b>">c</a>', ["/?q=%3Cimg%3E%3Cb%3E"], "a > b c"),
        ('<!-- <p> --><a href="/?q=<i>">a</a>', ["/?q=%3Ci%3E"], "a"),
        ('one<div data-x="<p>">two</div>', [], "one\ntwo"),
        ('<p class="<b>x</b>">one<span class="</p>">two', [], "onetwo"),
        ('\x01<a href="/?q=<b>">a\x01<b>b</b></a>', ["/?q=%3Cb%3E"], "\x01a\x01b"),
    ],
)
def test_text_that_looks_like_a_tag_in_a_value_stays_in_the_value(
    markup: str, links: list[str], text: str | None
) -> None:
    parsed = parse(markup.encode(), url="http://h.example/", content_type="text/html; charset=utf-8")
    assert [link.url for link in parsed.links] == [f"http://h.example{link}" for link in links]
    if text is not None:
        assert parsed.text == text


def test_tags_are_parsed_in_linear_time() -> None:
    for markup in (b'<a x="', b"<a x='<a y=\"", b'="<', b"<a =", b'<a x="<" '):
        many = markup * 200_000
        assert len(replace_tags(many)) >= len(many) // 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Updated 2026-11-16", "Updated 2027-01-02"), ("at 9:05", "at 12:31:09"), ("1,234.50 visits", "7 visits"),
        ("17.11.2026", "1.2.26"), ("page \u0661", "page 2"),
    ],
)  # fmt: skip
def test_texts_that_differ_only_in_numbers_have_the_same_hash_without_numbers(first: str, second: str) -> None:
    def hashes(*, numbers: bool) -> set[str]:
        pages = (parse(f"<title>T</title><p>{text}".encode(), url="http://a.example/") for text in (first, second))
        return {text_hash(page, b"", numbers=numbers) for page in pages}

    assert len(hashes(numbers=True)) == 2
    assert len(hashes(numbers=False)) == 1


def test_words_and_bodies_without_text_change_the_hash_without_numbers_too() -> None:
    def hashed(text: str) -> str:
        return text_hash(parse(f"<p>{text}".encode(), url="http://a.example/"), text.encode(), numbers=False)

    assert len({hashed("16 November"), hashed("16 December"), hashed("16"), hashed("16 16")}) == 4
    assert text_hash(Parsed(), b"1", numbers=False) != text_hash(Parsed(), b"2", numbers=False)
