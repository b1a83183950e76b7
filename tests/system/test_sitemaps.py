"""Sitemaps in real crawls: their URLs are visited by the same rules as links, and none of them is endless."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.site.responses import Response, page, redirect, robots
from tests.system.crawls import Crawls, open_crawls

XML = "application/xml"
BOMB = '<!DOCTYPE urlset [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {chr(n + 1)} "{f"&{chr(n)};" * 10}">' for n in range(97, 106)
)


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawls]:
    with open_crawls(tmp_path_factory.mktemp("sitemaps"), hosts=60, workers=2) as opened:
        yield opened


def urlset(*urls: str) -> str:
    return f"<?xml version='1.0'?><urlset>{''.join(f'<url><loc>{url}</loc></url>' for url in urls)}</urlset>"


def index(*urls: str) -> str:
    return f"<sitemapindex>{''.join(f'<sitemap><loc>{url}</loc></sitemap>' for url in urls)}</sitemapindex>"


def start(crawls: Crawls, *sitemaps: str) -> str:
    """A host with a page without links, and a robots.txt that names these."""
    (host,) = crawls.site.take()
    crawls.site.at(host, "/", page())
    crawls.site.at(host, "/robots.txt", robots("".join(f"Sitemap: {sitemap}\n" for sitemap in sitemaps)))
    return host


def requested_paths(crawls: Crawls, *hosts: str) -> list[str]:
    return [request.path for request in crawls.site.requests(*hosts) if not request.is_robots]


@contextlib.contextmanager
def serving_bytes(path: str, body: bytes) -> Iterator[str]:
    """A host with one file, which need not be text."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == path
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "application/x-gzip")
            self.send_header("Content-Length", str(len(body) if known else 0))
            self.end_headers()
            self.wfile.write(body if known else b"")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.3.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.3.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_every_kind_of_sitemap_leads_to_its_pages(crawls: Crawls) -> None:
    host = start(crawls, "/index.xml")
    site, here = crawls.site, f"http://{host}"
    for name in ("xml", "text", "rss", "atom"):
        site.at(host, f"/from-{name}", page())
    site.at(host, "/index.xml", Response(body=index("/a", "/b.txt", "/c", "/d"), type=XML))
    site.at(host, "/a", Response(body=urlset(f"{here}/from-xml"), type="text/plain"))
    site.at(host, "/b.txt", Response(body=f"\ufeff{here}/from-text\r\n", type="text/plain"))
    site.at(host, "/c", Response(body=f"<rss><channel><item><link>{here}/from-rss</link></item></channel></rss>"))
    site.at(host, "/d", Response(body=f'<feed><entry><link href="{here}/from-atom"/></entry></feed>', type=XML))
    done = crawls.run(f"{here}/", sitemaps=True)
    urls = {f"{here}/from-{name}" for name in ("xml", "text", "rss", "atom")}
    assert urls <= set(done.rows)
    assert {(done.rows[url]["found"], done.rows[url]["depth"]) for url in urls} == {("sitemap", 1)}
    assert {done.rows[f"{here}/{name}"]["depth"] for name in ("index.xml", "b.txt", "c")} == {0}
    assert not done.counts.reasons
    assert not done.judge.impolite(0.05)
    assert not done.judge.unannounced()


def test_a_compressed_sitemap_is_decompressed(crawls: Crawls) -> None:
    host = start(crawls)
    crawls.site.at(host, "/from-gz", page())
    with serving_bytes("/s.xml.gz", gzip.compress(urlset(f"http://{host}/from-gz").encode())) as other:
        crawls.site.at(host, "/robots.txt", robots(f"Sitemap: http://{other}/s.xml.gz"))
        done = crawls.run(f"http://{host}/", sitemaps=True, scope="any")
    assert f"http://{host}/from-gz" in done.rows
    assert done.counts.failed == 0


def test_without_the_option_no_sitemap_is_requested(crawls: Crawls) -> None:
    host = start(crawls, "/s.xml")
    crawls.run(f"http://{host}/")
    assert requested_paths(crawls, host) == ["/"]


def test_the_usual_sitemap_url_is_tried_once_for_seeds(crawls: Crawls) -> None:
    hosts = [start(crawls) for _ in range(4)]
    usual, missing, elsewhere, soft = hosts
    crawls.site.at(usual, "/", page("/linked", f"http://{elsewhere}/"))
    crawls.site.at(usual, "/sitemap.xml", Response(body=urlset("/listed"), type=XML))
    for path in ("/linked", "/listed"):
        crawls.site.at(usual, path, page())
    crawls.site.at(soft, "*", page(title="Nothing was found, and we say so with 200"))
    seeds = [f"http://{host}/" for host in (usual, missing, soft)]
    done = crawls.run(*seeds, sitemaps=True, scope="any")
    assert f"http://{usual}/listed" in done.rows
    assert (
        requested_paths(crawls, missing).count("/sitemap.xml")
        == requested_paths(crawls, soft).count("/sitemap.xml")
        == 1
    )
    assert requested_paths(crawls, elsewhere) == ["/"]
    # A missing sitemap that robots.txt does not name is neither a failure nor a page.
    assert done.counts.reasons == {"excluded:no sitemap": 2}
    assert done.counts.failed == 0
    assert f"http://{soft}/sitemap.xml" not in done.rows


def test_a_sitemap_in_robots_txt_that_is_missing_counts_as_failed(crawls: Crawls) -> None:
    host = start(crawls, "/missing.xml", "/page.html", "/bomb.xml")
    crawls.site.at(host, "/page.html", page())
    bomb = f"{BOMB}]>{urlset('http://a.example/&j;')}".replace("<?xml version='1.0'?>", "")
    crawls.site.at(host, "/bomb.xml", Response(body=bomb, type=XML))
    done = crawls.run(f"http://{host}/", sitemaps=True)
    assert done.counts.reasons == {
        "failed:status 404": 1,
        "failed:sitemap: not a sitemap": 1,
        "failed:sitemap: a DTD": 1,
    }
    assert done.counts.failed == 3


def test_robots_txt_and_scope_apply_to_sitemaps_and_their_urls(crawls: Crawls) -> None:
    other = start(crawls)
    host = start(crawls)
    here = f"http://{host}"
    named = "".join(f"Sitemap: {url}\n" for url in (f"{here}/private/s.xml", "/s.xml", f"http://{other}/s.xml"))
    crawls.site.at(host, "/robots.txt", robots(f"{named}User-agent: *\nDisallow: /private"))
    listed = urlset(f"{here}/a", f"{here}/private/b", f"http://{other}/c", f"{here}/d.zip")
    crawls.site.at(host, "/s.xml", Response(body=listed, type=XML))
    crawls.site.at(host, "/a", page())
    done = crawls.run(f"{here}/", sitemaps=True, deny_extensions=("zip", "xml"), hosts=(host, other))
    assert set(requested_paths(crawls, host)) == {"/", "/s.xml", "/a"}
    assert crawls.site.requests(other) == []
    assert done.counts.reasons == {"excluded:robots.txt": 2}


def test_a_sitemap_on_another_host_is_read_if_that_host_is_in_scope(crawls: Crawls) -> None:
    other = start(crawls)
    host = start(crawls, f"http://{other}/s.xml")
    crawls.site.at(other, "/s.xml", Response(body=urlset(f"http://{host}/listed"), type=XML))
    crawls.site.at(host, "/listed", page())
    done = crawls.run(f"http://{host}/", sitemaps=True, scope="any", hosts=(host, other))
    assert f"http://{host}/listed" in done.rows
    assert requested_paths(crawls, other) == ["/s.xml"]
    assert not done.judge.unannounced()


def test_a_redirected_sitemap_is_still_read_as_a_sitemap(crawls: Crawls) -> None:
    host = start(crawls, "/s.xml")
    crawls.site.at(host, "/s.xml", redirect("/maps/s"))
    crawls.site.at(host, "/maps/s", Response(body=urlset("/allowed/listed"), type="text/plain"))
    crawls.site.at(host, "/allowed/listed", page())
    done = crawls.run(f"http://{host}/", sitemaps=True, allow=("/allowed/",))
    assert f"http://{host}/allowed/listed" in done.rows


def test_feeds_that_pages_link_to_are_read_too(crawls: Crawls) -> None:
    host = start(crawls)
    feed = "<rss><channel><item><link>/post</link></item></channel></rss>"
    crawls.site.at(host, "/", page("/feed"))
    crawls.site.at(host, "/feed", Response(body=feed, type="application/rss+xml"))
    crawls.site.at(host, "/post", page())
    assert f"http://{host}/post" in crawls.run(f"http://{host}/", sitemaps=True).rows
    crawls.run(f"http://{host}/")
    assert requested_paths(crawls, host).count("/post") == 1


def test_an_endless_sitemap_index_terminates(crawls: Crawls) -> None:
    """Each file names the next one: indexes in indexes, and more files than any site has."""
    host = start(crawls, "/0.xml")
    for number in range(10):
        crawls.site.at(host, f"/{number}.xml", Response(body=index(f"/{number + 1}.xml"), type=XML))
    crawls.run(f"http://{host}/", sitemaps=True)
    assert [path for path in requested_paths(crawls, host) if path != "/"] == ["/0.xml", "/1.xml", "/2.xml", "/3.xml"]


def test_a_host_has_a_maximum_number_of_sitemaps(crawls: Crawls) -> None:
    host = start(crawls, "/wide.xml")
    crawls.site.at(host, "/wide.xml", Response(body=index(*(f"/{n}.xml" for n in range(3000))), type=XML))
    crawls.site.at(host, "*", Response(body=index("/0.xml"), type=XML))
    crawls.run(f"http://{host}/", sitemaps=True, delay_seconds=0.0, delay_factor=0.0, seconds=60)
    assert len(requested_paths(crawls, host)) == 1 + 1000


def test_depth_is_counted_from_the_page_that_found_the_site(crawls: Crawls) -> None:
    host = start(crawls, "/s.xml")
    crawls.site.at(host, "/s.xml", Response(body=urlset("/listed"), type=XML))
    crawls.run(f"http://{host}/", sitemaps=True, limits={"max_depth": 0})
    assert requested_paths(crawls, host) == ["/"]
    crawls.site.at(host, "/listed", page("/deeper"))
    crawls.run(f"http://{host}/", sitemaps=True, limits={"max_depth": 1})
    assert set(requested_paths(crawls, host)) == {"/", "/s.xml", "/listed"}


def test_sitemaps_may_be_larger_than_pages(crawls: Crawls) -> None:
    host = start(crawls, "/s.xml")
    crawls.site.at(host, "/s.xml", Response(body=urlset("/listed"), type=XML, size=300_000))
    crawls.site.at(host, "/listed", Response(size=300_000))
    done = crawls.run(f"http://{host}/", sitemaps=True, body_bytes=200_000)
    assert done.counts.reasons == {"failed:too large": 1}
    assert done.rows[f"http://{host}/s.xml"]["status"] == 200
