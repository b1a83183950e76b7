"""`shoal explain` and the samples of `shoal show`, after a real crawl."""

from __future__ import annotations

import json

from tests.site.responses import page, redirect, robots
from tests.site.site import Site
from tests.system.shell import Shell


def test_explain_shows_why_each_url_was_not_visited(shell: Shell, site: Site) -> None:
    host, other = site.take(2)
    start = f"http://{host}/"
    site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /private\n"))
    links = ["/private/1", "/old", "/a.zip", "/calendar/2150-01-01", f"http://{other}/", "/1"]
    site.at(host, "/", page(*links, *(f"http://{other}/{number}" for number in range(30))))
    site.at(host, "/old", redirect("/1"))
    site.at(host, "/1", page("/2"))
    result = shell.crawl(
        start, "--name", "c", "--delay", "0", "--max-depth", "1", "--deny-extension", "zip", "--out", "pages.db"
    )
    assert result.code == 0, result.err
    status = shell.counts("c")
    samples = status["samples"]
    assert len(samples.pop("scope: other host")) == 20
    assert samples == {
        "depth": [f"{start}2"], "redirect": [f"{start}old"], "robots.txt": [f"{start}private/1"],
        "scope: extension .zip": [f"{start}a.zip"], "trap: calendar": [f"{start}calendar/2150-01-01"],
    }  # fmt: skip
    shown = shell.run("show", "c").out
    assert f"robots.txt, e.g. {start}private/1\n" in shown
    assert f"not followed  trap: calendar, e.g. {start}calendar/2150-01-01\n" in shown
    assert f"\nscope: other host      http://{other}/7\n" in shell.run("show", "c", "--samples").out
    expected = {
        "private/1": (f"{start}robots.txt line 2", "excluded"),
        "old": ("It was excluded: redirect.", "excluded"),
        "a.zip": ("--deny-extension zip", "excluded"),
        "calendar/2150-01-01": ("trap: calendar", "excluded"),
        "2": ("--max-depth 1", "excluded"),
        "1": ("It was visited", "visited"),
    }
    for path, (text, verdict) in expected.items():
        result = shell.run("explain", "c", f"{start}{path}")
        assert result.code == 0, result.err
        assert result.out.startswith(f"verdict     {verdict}: "), result.out
        assert text in result.out
    assert (
        json.loads(shell.run("explain", "c", f"http://{other}/", "--json").out)["checks"][0]["rule"] == "--scope host"
    )
    assert site.requests(other) == []


def test_an_unknown_crawl_is_reported_in_one_sentence(shell: Shell, site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", page())
    assert shell.crawl(f"http://{host}/", "--name", "c", "--delay", "0", "--out", "pages.db").code == 0
    result = shell.run("explain", "nothing", "http://a.example/")
    assert result.code == 1
    assert "no crawl 'nothing'" in result.err
