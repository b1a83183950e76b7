"""Sitemaps, indexes, text, feeds: what is read of them, and that hostile ones do no harm."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path
from unittest import mock

import pytest

from shoal.parse import sitemap as sitemap_module
from shoal.parse.dates import timestamp
from shoal.parse.sitemap import MAX_BYTES, MAX_MEMBERS, MAX_URLS, Sitemap, _SitemapReader, is_sitemap, read

SAMPLES = Path(__file__).parents[3] / "shared/data/crawler-commons/src/test/resources/sitemaps"
HERE = "https://example.org/maps/sitemap.xml"
NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def urlset(*locs: str, attributes: str = NAMESPACE, head: str = '<?xml version="1.0" encoding="UTF-8"?>') -> str:
    return f"{head}<urlset {attributes}>{''.join(f'<url><loc>{loc}</loc></url>' for loc in locs)}</urlset>"


def urls(body: str | bytes, content_type: str = "") -> tuple[str, ...]:
    sitemap = read(body.encode() if isinstance(body, str) else body, url=HERE, content_type=content_type)
    assert sitemap.trouble == ""
    return sitemap.urls


def test_a_urlset_lists_each_page_once_and_in_order():
    body = urlset("https://example.org/b", " https://example.org/a\n", "HTTPS://EXAMPLE.org/b#part", "/relative?q=1")
    assert read(body.encode(), url=HERE) == Sitemap(
        urls=("https://example.org/b", "https://example.org/a", "https://example.org/relative?q=1"), kind="urlset"
    )


def test_an_index_lists_sitemaps():
    body = "<sitemapindex><sitemap><loc>https://example.org/1.xml.gz</loc><lastmod>2020</lastmod></sitemap>"
    body += "<sitemap>\nhttps://example.org/2.xml\n</sitemap></sitemapindex>"
    sitemap = read(body.encode(), url=HERE)
    assert sitemap.sitemaps == ("https://example.org/1.xml.gz", "https://example.org/2.xml")
    assert sitemap.urls == ()


@pytest.mark.parametrize(
    "body",
    [
        urlset("https://example.org/a", attributes=""),
        urlset("https://example.org/a", attributes='xmlns="http://www.google.com/schemas/sitemap/0.84"'),
        "<s:urlset xmlns:s='u'><s:url><s:loc>https://example.org/a</s:loc></s:url></s:urlset>",
        "<s:urlset><s:url><s:loc>https://example.org/a</s:loc></s:url></s:urlset>",
        "<URLSET><Url><LOC>https://example.org/a</LOC></Url></URLSET>",
        "\n\n  " + urlset("https://example.org/a"),
        "\ufeff" + urlset("https://example.org/a"),
        urlset("<![CDATA[https://example.org/a]]>"),
        "<!DOCTYPE urlset SYSTEM 'http://127.0.0.1:1/a.dtd'><urlset><url><loc>https://example.org/a</loc></url></urlset>",
    ],
)
def test_namespaces_and_byte_order_marks_do_not_matter(body):
    assert urls(body) == ("https://example.org/a",)
    assert is_sitemap(body.encode().lstrip())


def test_images_and_alternate_languages_of_a_page_are_not_pages():
    body = """<urlset xmlns:image="i" xmlns:xhtml="x"><url><loc>https://example.org/a</loc>
        <image:image><image:loc>https://example.org/a.png</image:loc></image:image>
        <xhtml:link rel="alternate" hreflang="de" href="https://example.org/de"/></url></urlset>"""
    assert urls(body) == ("https://example.org/a",)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1", "windows-1251", "shift_jis"])
def test_a_declared_encoding_is_used(encoding):
    word = {"windows-1251": "ж", "shift_jis": "日"}.get(encoding, "é")
    body = urlset(f"https://example.org/{word}", head=f'<?xml version="1.0" encoding="{encoding}"?>').encode(encoding)
    assert urls(body) == urls(urlset(f"https://example.org/{word}"))


def test_the_server_may_name_the_encoding():
    body = urlset("https://example.org/ж", head="").encode("windows-1251")
    assert urls(body, content_type="text/xml; charset=windows-1251") == ("https://example.org/%D0%B6",)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_plain_text_sitemap_has_one_url_per_line(mark, end):
    lines = [b"https://example.org/a", b"", b"  ftp://example.org/b ", b"not a URL", b"javascript:alert(1)"]
    sitemap = read(mark + end.join(lines), url=HERE)
    assert (sitemap.urls, sitemap.dropped) == (("https://example.org/a", "ftp://example.org/b"), 2)
    assert sitemap.kind == "text"


def test_the_items_of_a_feed_are_pages():
    body = """<rss version="2.0" xmlns:atom="a"><channel><link>https://example.org/</link>
        <atom:link href="https://example.org/feed" rel="self"/>
        <item><title>One</title><link>https://example.org/1</link><guid>https://example.org/?p=1</guid></item>
        <item><guid isPermaLink="true">https://example.org/2</guid></item>
        <item><guid isPermaLink="false">https://example.org/id/3</guid></item>
        <item><guid>tag:example.org,2020:4</guid></item></channel></rss>"""
    assert urls(body) == ("https://example.org/1", "https://example.org/2")


def test_rss_1_is_read_as_rdf():
    body = """<rdf:RDF xmlns:rdf="r" xmlns="http://purl.org/rss/1.0/"><channel><link>https://example.org/</link></channel>
        <item rdf:about="https://example.org/1"><link>https://example.org/1</link></item></rdf:RDF>"""
    assert urls(body) == ("https://example.org/1",)


def test_the_entries_of_atom_are_pages():
    body = """<feed xmlns="http://www.w3.org/2005/Atom" xml:base="https://example.org/blog/"><link href="/"/>
        <entry><link href="1"/><link rel="edit" href="1/edit"/><link rel="alternate" href="1.html"/>
        <content type="xhtml"><div><a href="x">x</a><link href="no"/></div></content></entry></feed>"""
    assert urls(body) == ("https://example.org/blog/1", "https://example.org/blog/1.html")


def test_html_and_other_xml_are_not_sitemaps():
    for body in (b"<html><body><url><loc>https://example.org/</loc></url></body></html>", b"<svg/>", b"<", b"", b"<!-"):
        assert read(body, url=HERE).urls == ()
        assert not is_sitemap(body)


def test_gzip_of_one_or_more_members_is_unpacked():
    first, second = gzip.compress(b"https://example.org/1\n"), gzip.compress(b"https://example.org/2\n")
    assert urls(first + second, content_type="application/x-gzip; charset=x") == (
        "https://example.org/1",
        "https://example.org/2",
    )
    assert is_sitemap(gzip.compress(urlset("/").encode()))


def test_urls_read_before_an_error_are_kept():
    whole = urlset(*(f"https://example.org/{n}" for n in range(5000))).encode()
    sitemap = read(whole[: len(whole) // 2] + b"<</wrong>", url=HERE)
    assert 2000 < len(sitemap.urls) < 3000
    assert sitemap.trouble == "not well-formed"
    packed = gzip.compress(whole, mtime=0)
    for broken in (packed[: len(packed) // 2], packed[: len(packed) // 2] + b"\xff" * 100):
        sitemap = read(broken, url=HERE)
        assert len(sitemap.urls) > 100
        assert sitemap.trouble == "broken gzip"


@pytest.mark.parametrize("inside", ["/?a=1&b=2", "/?a=1&nbsp;", "/\x01", "/\x00"])
def test_urls_with_characters_that_xml_forbids_are_repaired(inside):
    assert (
        len(urls(urlset("https://example.org/first", f"https://example.org{inside}", "https://example.org/last"))) == 3
    )
    # A byte that is not UTF-8.
    assert urls(urlset("https://example.org/X", "/b").encode().replace(b"X", b"\xff"))[1:] == ("https://example.org/b",)


@pytest.mark.parametrize(
    "declared",
    [
        '<!ENTITY a "https://example.org/a"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">',
        '<!ENTITY a SYSTEM "file:///etc/passwd">',
        '<!ENTITY a SYSTEM "http://127.0.0.1:1/a">',
        '<!ENTITY % p SYSTEM "http://127.0.0.1:1/p"> %p;',
    ],
)
def test_declared_entities_are_refused(declared):
    body = f"<!DOCTYPE urlset [{declared}]>{urlset('https://example.org/1', '&a;&b;', head='')}"
    sitemap = read(body.encode(), url=HERE)
    assert sitemap.urls == ()
    assert sitemap.trouble == "a DTD"


def test_default_attributes_are_refused_before_they_are_added_to_every_element():
    # Before DTDs were refused, this took time quadratic in its size: 6.5 seconds of CPU for 135 KB.
    declared = "".join(f"<!ATTLIST url a{number} CDATA 'x'>" for number in range(2000))
    body = f"<!DOCTYPE urlset [{declared}]><urlset>{'<url/>' * 5000}</urlset>"
    with mock.patch.object(_SitemapReader, "_start", side_effect=AssertionError("an element was read")):
        assert read(body.encode(), url=HERE).trouble == "a DTD"
    assert (
        read(b"<!DOCTYPE urlset []>" + urlset("https://example.org/1", head="").encode(), url=HERE).trouble == "a DTD"
    )


def test_a_decompression_bomb_is_cut_at_the_size_limit_of_the_protocol():
    bomb = gzip.compress(urlset("https://example.org/1").removesuffix("</urlset>").encode() + b" " * (MAX_BYTES + 1))
    assert len(bomb) < 100_000
    sitemap = read(bomb, url=HERE)
    assert (sitemap.urls, sitemap.trouble) == (("https://example.org/1",), "too large")


def test_memory_stays_near_the_size_of_the_file():
    lone = b"<urlset><url><loc>" + b"x" * 20_000_000
    tracemalloc.start()
    try:
        assert read(lone, url=HERE).trouble == "not well-formed"
        assert tracemalloc.get_traced_memory()[1] < len(lone) + (1 << 24)
    finally:
        tracemalloc.stop()


def test_urls_beyond_the_limit_are_counted_and_dropped():
    sitemap = read(b"\n".join(b"https://example.org/%d" % n for n in range(MAX_URLS + 7)), url=HERE)
    assert (len(sitemap.urls), sitemap.dropped) == (MAX_URLS, 7)


@pytest.mark.parametrize(
    ("body", "trouble"),
    [
        (b"<urlset>" + b"<a>" * 1_000_000, "nested too deep"),
        (gzip.compress(b"") * (MAX_MEMBERS + 1), "too many members"),
        (b"<html>", "not a sitemap"),
        (b"<!doctype html><p>", "not a sitemap"),
        (b'{"not": "a sitemap"}', "not a sitemap"),
    ],
)
def test_parsing_of_expensive_files_stops_early(body, trouble):
    assert read(body, url=HERE).trouble == trouble


def test_elements_without_content_count_towards_the_limit(monkeypatch):
    monkeypatch.setattr(sitemap_module, "MAX_ELEMENTS", 1000)
    sitemap = read(urlset("/first").removesuffix("</urlset>").encode() + b"<a/>" * 1000, url=HERE)
    assert (sitemap.urls, sitemap.trouble) == (("https://example.org/first",), "too many elements")


def test_leading_comments_are_scanned_once():
    assert not is_sitemap(b"<!---->" * 1000)
    assert is_sitemap(b"<?xml version='1.0'?><!-- a > b --><?x y?>\n<!DOCTYPE rss><rss>")


def test_urls_that_cannot_be_visited_are_dropped():
    bad = ["javascript:alert(1)", "mailto:a@b", "file:///etc/passwd", "https://", "https://a" + "a" * 9000, ""]
    sitemap = read(urlset("https://example.org/", *bad).encode(), url=HERE)
    assert sitemap.urls == ("https://example.org/",)
    # An entry without a URL is ignored.
    assert sitemap.dropped == len(bad) - 1


def test_sample_sitemaps_of_crawler_commons_are_read():
    if not SAMPLES.is_dir():
        pytest.skip(f"the samples of crawler-commons are not at {SAMPLES}")
    counts = {}
    for path in SAMPLES.rglob("*.*"):
        sitemap = read(path.read_bytes(), url=HERE)
        assert (sitemap.dropped, sitemap.trouble) == (0, ""), path
        counts[path.name] = len(sitemap.urls) + len(sitemap.sitemaps)
    assert counts["sitemap.index.xml"] == 15
    assert counts["xmlSitemap.gz"] == counts["sitemap.txt.gz"] == 5
    assert counts["atom.xml"] == 2
    assert counts["hebdenbridgetimes-articles-sitemap.xml"] == 74
    assert all(counts.values())
    assert sitemap_module.MAX_URLS >= 50_000


def dated(body: str) -> dict[str, float]:
    assert read(body.encode(), url=HERE).changed_at == {}
    return read(body.encode(), url=HERE, dates=True).changed_at


def test_dates_of_entries_are_read_on_request():
    body = "<urlset><url><lastmod>1970-01-02</lastmod><loc>/a</loc></url><url><loc>/b</loc></url>"
    body += "<url><loc>/c</loc><lastmod>1970-01-01T01:01:00+01:00</lastmod></url>"
    body += "<url><loc>/d</loc><lastmod>soon</lastmod></url></urlset>"
    assert dated(body) == {"https://example.org/a": 86400.0, "https://example.org/c": 60.0}
    index = "<sitemapindex><sitemap><loc>/1.xml</loc><lastmod>1971</lastmod></sitemap></sitemapindex>"
    assert dated(index) == {"https://example.org/1.xml": 365 * 86400.0}


def test_dates_in_feeds_are_read_and_the_latest_date_of_an_entry_counts():
    item = "<item><title>A</title><link>/a</link><pubDate>Fri, 02 Jan 1970 00:00:00 +0000</pubDate></item>"
    assert dated(f"<rss><channel><pubDate>Mon, 05 Jan 1970 00:00:00 GMT</pubDate>{item}</channel></rss>") == {
        "https://example.org/a": 86400.0
    }
    entry = "<published>1970-01-01T00:00:10Z</published><link href='/b'/><updated>1970-01-01T00:00:30.5Z</updated>"
    assert dated(f"<feed><updated>1990-01-01T00:00:00Z</updated><entry>{entry}</entry></feed>") == {
        "https://example.org/b": 30.0
    }
    rdf = "<rdf:RDF xmlns:dc='x'><item><link>/c</link><dc:date>1970-01-03</dc:date></item></rdf:RDF>"
    assert dated(rdf) == {"https://example.org/c": 172800.0}


def test_a_dtd_is_refused_also_when_dates_are_read():
    sitemap = read(b'<!DOCTYPE rss [<!ENTITY a "b">]><rss><item><link>/a</link></item></rss>', url=HERE, dates=True)
    assert (sitemap.trouble, sitemap.changed_at) == ("a DTD", {})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01 00:00:05", 5.0), ("1970-01-01T00:01Z", 60.0), ("1970-01-01T00:00:00-0100", 3600.0),
        ("Thu, 1 Jan 70 00:00:09 GMT", 9.0), ("01 Jan 1970 01:00:00 +0100", 0.0), ("1970-13-01", 0.0), ("", 0.0),
        ("9" * 1000, 0.0), ("1970-01-01T99:00:00Z", 0.0), ("1900-01-01", 0.0), ("\u0661\u0669\u0667\u0660", 0.0),
    ],
)  # fmt: skip
def test_a_date_becomes_unix_time_and_an_invalid_one_becomes_0(text: str, seconds: float) -> None:
    assert timestamp(text) == seconds
