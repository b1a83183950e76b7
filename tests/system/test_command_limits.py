"""Limits of a crawl, raised by a later command of the same name."""

from __future__ import annotations

import shlex
import signal

import pytest

from tests.servers import wait_until
from tests.site.responses import Response, page, robots
from tests.site.site import Site
from tests.system.shell import Shell


def chain(site: Site, length: int) -> str:
    """Pages in a row, each at the next depth. Returns the URL of the first."""
    (host,) = site.take()
    site.at(host, "/robots.txt", robots("User-agent: *\nDisallow:\n"))
    for number in range(length):
        site.at(host, f"/{number}", page(f"/{number + 1}", title="x" * 1000))
    site.at(host, f"/{length}", page())
    return f"http://{host}/0"


HOW = ("--name", "c", "--delay", "0", "--workers", "1", "--out", "pages.db")


@pytest.mark.parametrize(
    ("low", "high", "reason"),
    [
        (("--max-pages", "3"), ("--max-pages", "1000"), "max pages"),
        pytest.param(("--max-bytes", "3k"), ("--max-bytes", "1gb"), "bytes", marks=pytest.mark.variant),
        pytest.param(("--max-depth", "2"), ("--max-depth", "50"), "", marks=pytest.mark.variant),
        pytest.param(("--max-bytes-per-host", "3k"), ("--max-bytes-per-host", "1gb"), "", marks=pytest.mark.variant),
        pytest.param(("--max-pages-per-host", "3"), ("--max-pages-per-host", "9000"), "", marks=pytest.mark.variant),
    ],
)
def test_a_crawl_resumes_when_its_limit_is_raised(
    shell: Shell, site: Site, low: tuple[str, str], high: tuple[str, str], reason: str
) -> None:
    start = chain(site, 8)
    result = shell.crawl(start, *HOW, *low)
    assert result.code == 0, result.err
    few = len(shell.rows())
    assert 1 <= few < 9
    assert shell.counts("c")["why"] == (reason or "finished")
    # Without a higher limit nothing changes, and only what would work is suggested.
    result = shell.crawl("--name", "c")
    assert result.code == 0
    if reason:
        assert f"Pass a higher {low[0]} to continue it." in result.err
    result = shell.crawl("--name", "c", *high)
    assert result.code == 0, result.err
    assert f"{low[0]} was raised." in result.err
    assert "ignored" not in result.err
    assert len(shell.rows()) == 9
    counts = shell.counts("c")
    assert (counts["counts"]["stored"], counts["excluded"]) == (9, {})
    host = start.split("/")[2]
    # No page was requested twice, but for one that was on its way when enough bytes had been received.
    assert site.judge(host).counts().total() <= 10 + (reason == "bytes")


@pytest.mark.full
def test_a_limit_that_is_already_reached_is_refused_and_changes_nothing(shell: Shell, site: Site) -> None:
    start = chain(site, 5)
    shell.crawl(start, *HOW, "--max-bytes", "3k")
    before = shell.counts("c")
    result = shell.crawl("--name", "c", "--max-bytes", "3001")
    assert result.code == 2
    assert "has already reached the new limit" in result.err
    assert shell.counts("c") == before


@pytest.mark.full
def test_a_crawl_stops_at_its_time_limit_and_resumes_with_a_higher_one(shell: Shell, site: Site) -> None:
    start = chain(site, 4)
    running = shell.start("crawl", start, *HOW[:2], "--delay", "600", "--max-time", "3s", "--out", "pages.db",
                          "--allow-network", "127.0.0.0/8")  # fmt: skip
    result = running.end()
    assert result.code == 0, result.err
    assert shell.counts("c")["why"] == "max time"
    assert "Pass a higher --max-time" in shell.crawl("--name", "c").err
    assert len(shell.rows()) <= 1
    assert shell.run("hosts", start.split("/")[2], "--delay", "0").code == 0
    result = shell.crawl("--name", "c", "--max-time", "10h")
    assert result.code == 0, result.err
    assert len(shell.rows()) == 5


@pytest.mark.parametrize("text", ["soon", "0s", "-1", "1w"])
def test_an_invalid_time_is_refused(shell: Shell, text: str) -> None:
    result = shell.call("crawl", "http://localhost/", "--max-time", text)
    assert result.code == 2
    assert "--max-time" in result.err


@pytest.mark.full
def test_new_urls_for_a_finished_crawl_are_refused(shell: Shell, site: Site) -> None:
    start, other = chain(site, 1), chain(site, 1)
    assert shell.crawl(start, *HOW).code == 0
    assert shell.crawl(start, *HOW).code == 0
    result = shell.crawl(other, *HOW)
    assert result.code == 2
    assert f"{other!r} is not one of its start URLs" in result.err
    assert len(shell.rows()) == 2


def test_the_command_that_a_retry_suggests_works(shell: Shell, site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/bad"))
    site.at(host, "/bad", Response(status=404), page())
    assert shell.crawl(f"http://{host}/", *HOW).code == 0
    result = shell.run("failed", "c", "--retry")
    assert result.code == 0
    command = result.err.strip().partition("Resume with: ")[2]
    result = shell.run(*shlex.split(command)[1:])
    assert result.code == 0, result.err
    counts = shell.counts("c")["counts"]
    assert (counts["stored"], counts["failed"]) == (2, 0)
    assert "failed" not in result.err


@pytest.mark.full
def test_a_start_url_that_is_a_sitemap_is_read(shell: Shell, site: Site) -> None:
    (host,) = site.take()
    listed = (
        f"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url><loc>http://{host}/a</loc></url></urlset>"
    )
    index = listed.replace("urlset", "sitemapindex").replace("<url>", "<sitemap>").replace("</url>", "</sitemap>")
    site.at(host, "/maps.xml", Response(body=index.replace("/a<", "/list.xml<"), type="application/xml"))
    site.at(host, "/list.xml", Response(body=listed, type="application/xml"))
    site.at(host, "/a", page())
    result = shell.crawl(f"http://{host}/maps.xml", *HOW)
    assert result.code == 0, result.err
    assert set(shell.rows()) == {f"http://{host}/{name}" for name in ("maps.xml", "list.xml", "a")}
    # With --no-follow, only this page is crawled.
    result = shell.crawl(f"http://{host}/list.xml", "--no-follow", *HOW[2:], "--name", "d")
    assert result.code == 0, result.err
    assert site.judge(host).times(f"http://{host}/a") == 1


def test_a_second_signal_still_prints_the_command_to_resume(shell: Shell, site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", Response(body="late", lasting=600.0))
    running = shell.start("crawl", f"http://{host}/", *HOW, "--allow-network", "127.0.0.0/8")
    wait_until(lambda: len(site.judge(host).paths(host)) > 1, "the page is requested")
    running.process.send_signal(signal.SIGINT)
    running.wait_for_output("Pausing")
    result = running.end(signal.SIGINT)
    assert result.code == 130
    assert "Crawl c was interrupted. Resume with: shoal crawl --name c --allow-network 127.0.0.0/8" in result.err


@pytest.mark.full
def test_the_urls_per_depth_are_limited_also_in_another_pass_and_under_a_higher_limit(shell: Shell, site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/robots.txt", robots("User-agent: *\nDisallow:\n"))
    site.at(host, "/", page("/1-a", "/1-b", "/1-c", "/1-d", "/1-e"))
    for name in "abcde":
        site.at(host, f"/1-{name}", page(*(f"/2-{name}{number}" for number in range(4))))
        for number in range(4):
            site.at(host, f"/2-{name}{number}", page())

    def depths() -> list[int]:
        return sorted(row["depth"] for row in shell.rows().values())

    result = shell.crawl(f"http://{host}/", *HOW, "--max-urls-per-depth", "2")
    assert result.code == 0, result.err
    assert depths() == [0, 1, 1, 2, 2]
    result = shell.crawl(f"http://{host}/", *HOW, "--again")
    assert result.code == 0, result.err
    assert len(site.judge(host).repeated()) == 5, "all five pages were visited twice, and robots.txt once"
    assert site.judge(host).counts().total() == 2 * 5 + 1
    result = shell.crawl("--name", "c", "--max-urls-per-depth", "3")
    assert result.code == 0, result.err
    assert "--max-urls-per-depth was raised." in result.err
    assert depths() == [0, 1, 1, 1, 2, 2, 2]
