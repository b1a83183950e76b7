"""Limits of a crawl, raised by a later command of the same name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.site.answers import page, robots
from tests.site.site import Site, serving
from tests.system.commanding import Shell


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("site"), hosts=12) as one:
        yield one


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


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
        (("--max-bytes", "3k"), ("--max-bytes", "1gb"), "bytes"),
        (("--max-depth", "2"), ("--max-depth", "50"), ""),
        (("--max-bytes-per-host", "3k"), ("--max-bytes-per-host", "1gb"), ""),
        (("--max-pages-per-host", "3"), ("--max-pages-per-host", "9000"), ""),
    ],
)
def test_a_crawl_goes_on_when_its_limit_is_raised(
    shell: Shell, site: Site, low: tuple[str, str], high: tuple[str, str], reason: str
) -> None:
    start = chain(site, 8)
    ran = shell.crawl(start, *HOW, *low)
    assert ran.code == 0, ran.err
    few = len(shell.rows())
    assert 1 <= few < 9
    assert shell.counts("c")["why"] == (reason or "finished")
    # Without a higher limit nothing changes, and only what would work is suggested.
    ran = shell.crawl("--name", "c")
    assert ran.code == 0
    if reason:
        assert f"Pass a higher {low[0]} to continue it." in ran.err
    ran = shell.crawl("--name", "c", *high)
    assert ran.code == 0, ran.err
    assert f"{low[0]} was raised." in ran.err
    assert "ignored" not in ran.err
    assert len(shell.rows()) == 9
    counts = shell.counts("c")
    assert (counts["counts"]["stored"], counts["excluded"]) == (9, {})
    host = start.split("/")[2]
    # No page was requested twice, but for one that was on its way when enough bytes had been received.
    assert site.judge(host).counts().total() <= 10 + (reason == "bytes")


def test_a_limit_that_is_reached_already_is_refused_and_changes_nothing(shell: Shell, site: Site) -> None:
    start = chain(site, 5)
    shell.crawl(start, *HOW, "--max-bytes", "3k")
    before = shell.counts("c")
    ran = shell.crawl("--name", "c", "--max-bytes", "3001")
    assert ran.code == 2
    assert "has reached the new limit already" in ran.err
    assert shell.counts("c") == before


def test_a_crawl_stops_at_its_time_limit_and_goes_on_with_a_higher_one(shell: Shell, site: Site) -> None:
    start = chain(site, 4)
    running = shell.start("crawl", start, *HOW[:2], "--delay", "600", "--max-time", "3s", "--out", "pages.db",
                          "--allow-network", "127.0.0.0/8")  # fmt: skip
    ran = running.end()
    assert ran.code == 0, ran.err
    assert shell.counts("c")["why"] == "max time"
    assert "Pass a higher --max-time" in shell.crawl("--name", "c").err
    assert len(shell.rows()) <= 1
    assert shell.run("hosts", start.split("/")[2], "--delay", "0").code == 0
    ran = shell.crawl("--name", "c", "--max-time", "10h")
    assert ran.code == 0, ran.err
    assert len(shell.rows()) == 5


@pytest.mark.parametrize("text", ["soon", "0s", "-1", "1w"])
def test_a_time_that_is_none_is_refused(shell: Shell, text: str) -> None:
    ran = shell.call("crawl", "http://localhost/", "--max-time", text)
    assert ran.code == 2
    assert "--max-time" in ran.err


def test_other_urls_for_a_finished_crawl_are_refused(shell: Shell, site: Site) -> None:
    start, other = chain(site, 1), chain(site, 1)
    assert shell.crawl(start, *HOW).code == 0
    assert shell.crawl(start, *HOW).code == 0
    ran = shell.crawl(other, *HOW)
    assert ran.code == 2
    assert f"{other!r} is not one of its start URLs" in ran.err
    assert len(shell.rows()) == 2
