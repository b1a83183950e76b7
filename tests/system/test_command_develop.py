"""Tools for developing a spider: a log of requests, silence, a cache of responses, and templates."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.site.responses import Response, page, robots
from tests.site.site import Site
from tests.system.shell import LOCAL, Shell

HOW = ("--delay", "0", "--workers", "1", "--out", "pages.db")


def furnish(site: Site) -> str:
    (host,) = site.take()
    site.at(host, "/robots.txt", robots("User-agent: *\nDisallow:\n"))
    site.at(host, "/", page("/a", "/missing", title="Home"))
    site.at(host, "/a", page(title="A"))
    return f"http://{host}/"


def test_each_request_is_one_line_with_the_flag_v(shell: Shell, site: Site) -> None:
    start = furnish(site)
    result = shell.crawl(start, *HOW, "-v")
    assert result.code == 0, result.err
    requests = re.findall(r"^\d\d:\d\d:\d\d  (\S+)  [\d.]+ \w+  [\d.]+ s  (\S+)$", result.err, re.M)
    assert sorted(requests, key=lambda pair: pair[1]) == [
        ("200", start), ("200", f"{start}a"), ("404", f"{start}missing"), ("200", f"{start}robots.txt"),
    ]  # fmt: skip


def test_a_log_in_json_has_an_event_for_each_request(shell: Shell, site: Site) -> None:
    start = furnish(site)
    result = shell.crawl(start, *HOW, "-v", "--log", "json")
    events = [json.loads(line) for line in result.err.splitlines()]
    requests = {event["url"]: event for event in events if event["event"] == "request"}
    assert requests[f"{start}a"]["status"] == 200
    assert requests[f"{start}a"]["bytes"] > 0


def test_only_errors_are_printed_with_the_flag_q(shell: Shell, site: Site) -> None:
    start = furnish(site)
    result = shell.crawl(start, *HOW, "-q")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert len(shell.rows()) == 3
    assert "not a URL" in shell.crawl("http//x", "-q").err
    result = shell.crawl(start, "-q", "-v")
    assert result.code == 2
    assert "Choose either -v or -q." in result.err


@pytest.mark.full
def test_a_cached_page_is_requested_once_and_needs_no_delay(shell: Shell, site: Site) -> None:
    (host,) = site.take()
    start = f"http://{host}/"
    site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /private\n"))
    site.at(host, "/", page(*(f"/{number}" for number in range(30)), "/private", "/failing"))
    for number in range(30):
        site.at(host, f"/{number}", page(title=str(number)))
    site.at(host, "/failing", Response(status=503))
    how = ("--workers", "1", "--cache", "pages", "--retries", "0")
    assert shell.crawl(start, "--name", "one", "--delay", "0", "--out", "one.db", *how).code == 0
    before = len(site.requests(host))
    assert before >= 33
    # With such a delay, one request for each page would take more than an hour.
    elsewhere = ("--folder", "second", "--out", "two.db")
    result = shell.crawl(start, "--name", "two", "--delay", "300", *elsewhere, *how, "--deny", "failing", "-v")
    assert result.code == 0, result.err
    assert result.err.count("  cached  ") == 32
    assert len(site.requests(host)) == before
    first, second = shell.rows("one.db"), shell.rows("two.db")
    assert {url for url, row in first.items() if not row["error"]} == set(second)
    assert f"{start}private" not in second
    # What may succeed next time is not cached, and the network keeps its delay.
    result = shell.crawl(f"{start}failing", "--delay", "0.3", "--out", "three.db", *how)
    assert len(site.requests(host)) == before + 1


def test_a_fetched_page_is_cached_too(shell: Shell, site: Site) -> None:
    start = furnish(site)
    for _ in range(2):
        result = shell.run("fetch", start, "--cache", "--delay", "0", *LOCAL)
        assert result.code == 0, result.err
    assert [request.path for request in site.requests(start.split("/")[2])] == ["/robots.txt", "/"]
    assert (shell.folder / ".shoal-cache").is_dir()


@pytest.mark.parametrize(
    "template", ["list", *(pytest.param(name, marks=pytest.mark.variant) for name in ("article", "json"))]
)
def test_a_generated_spider_and_its_test_run_unchanged(shell: Shell, site: Site, template: str) -> None:
    (host,) = site.take()
    start = f"http://{host}/"
    if template == "json":
        site.at(host, "/", Response(body='{"results": [{"id": 1}], "next": "?page=2"}', type="application/json"))
        site.at(host, "/?page=2", Response(body='{"results": [{"id": 2}]}', type="application/json"))
    else:
        site.at(host, "/", page("/a", title="Home", body="<a rel=next href=b>b</a>"))
        for path in ("/a", "/b"):
            site.at(host, path, page(title=path))
    result = shell.call("new", "spider", "my-shop", "--url", start, "--template", template)
    assert result.code == 0, result.err
    tests = subprocess.run([sys.executable, "-m", "pytest", "-q", "test_my_shop.py"], cwd=shell.folder, check=False)
    assert tests.returncode == 0
    result = shell.crawl("--spider", "my_shop.py:MyShop", "--delay", "0", "--out", "items.jsonl")
    assert result.code == 0, result.err
    items = [json.loads(line) for line in (shell.folder / "items.jsonl").read_text().splitlines()]
    assert len(items) >= 2
    result = shell.call("new", "spider", "my-shop")
    assert result.code == 2
    assert "my_shop.py exists" in result.err


def test_an_invalid_name_is_refused(shell: Shell) -> None:
    assert "is not a name for a spider" in shell.call("new", "spider", "9").err
