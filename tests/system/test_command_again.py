"""`shoal crawl --again`: a finished crawl's pages are visited again, and only changed pages are transferred."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.servers import wait_until
from tests.site.responses import Response, html, page, redirect
from tests.site.site import Site
from tests.system.shell import LOCAL, Shell

pytestmark = pytest.mark.full


def tagged(*links: str, title: str, tag: str) -> Response:
    return Response(body=html(links, title), etag=f'"{tag}"')


def statuses_since(site: Site, host: str, since: int) -> dict[str, int]:
    """Path -> status of the requests to the host after the first `since` ones; no path twice."""
    requests = [request for request in site.requests(host)[since:] if not request.is_robots]
    assert max(Counter(request.path for request in requests).values(), default=0) <= 1
    return {request.path: request.status for request in requests}


@pytest.mark.parametrize("out", ["pages.db", "pages.jsonl.gz"])
def test_another_pass_fetches_changed_pages_finds_new_ones_and_reports_missing_ones(
    site: Site, shell: Shell, out: str
) -> None:
    (host,) = site.take()
    site.at(host, "/", tagged("/same", "/new-text", "/gone", title="Home", tag="h1"))
    site.at(host, "/same", tagged("/deep", title="Same", tag="s1"))
    site.at(host, "/deep", tagged("/", title="Deep", tag="d1"))
    site.at(host, "/new-text", tagged(title="Old", tag="o1"))
    site.at(host, "/gone", tagged(title="Gone", tag="g1"))
    result = shell.crawl(f"http://{host}/", "--delay", "0", "--name", "news", "--out", out)
    assert result.code == 0, result.err
    since = len(site.requests(host))
    site.at(host, "/new-text", tagged("/fresh", "/same", title="New", tag="o2"))
    site.at(host, "/fresh", tagged("/deep", title="Fresh", tag="f1"))
    site.at(host, "/gone", Response(status=404))
    result = shell.crawl("--name", "news", "--again")
    assert result.code == 0, result.err
    assert "Revisiting crawl news with" in result.err
    assert "Revisiting 5 URLs of crawl news." in result.err
    # The summary has the state and what has changed.
    assert "  stored      5 pages" in result.err
    assert "  failed      1: 1 status 404" in result.err
    assert "  revisited   3 unchanged, 1 changed, 1 gone, 1 new" in result.err
    counts = shell.counts("news")["counts"]
    assert (counts["stored"], counts["failed"], counts["admitted"]) == (5, 1, 6)
    assert statuses_since(site, host, since) == {
        "/": 304, "/same": 304, "/deep": 304, "/new-text": 200, "/gone": 404, "/fresh": 200,
    }  # fmt: skip
    if out == "pages.db":
        rows = {url.rpartition("/")[2]: row for url, row in shell.rows().items()}
        assert {path: (row["title"], row["error"]) for path, row in rows.items()} == {
            "": ("Home", None), "same": ("Same", None), "deep": ("Deep", None), "new-text": ("New", None),
            "gone": ("", "status 404"), "fresh": ("Fresh", None),
        }  # fmt: skip
        assert rows["deep"]["depth"] == 2
    # And once more: what is new by now belongs to it.
    since = len(site.requests(host))
    result = shell.crawl("--name", "news", "--again")
    assert result.code == 0, result.err
    assert set(statuses_since(site, host, since).values()) == {304, 404}
    assert len(statuses_since(site, host, since)) == 6


@pytest.mark.smoke
def test_a_new_name_starts_a_crawl_and_a_finished_one_shows_the_command_for_another_pass(
    site: Site, shell: Shell
) -> None:
    (host,) = site.take()
    site.at(host, "/", page())
    result = shell.crawl(f"http://{host}/", "--delay", "0", "--name", "daily", "--again")
    assert result.code == 0, result.err
    assert "Starting crawl daily" in result.err
    assert "or pass --again" in shell.crawl("--name", "daily").err
    assert len(site.requests(host)) == 2


def test_the_redirect_of_a_seed_is_followed_again(site: Site, shell: Shell) -> None:
    first, second, third = site.take(3)
    site.at(first, "/", redirect(f"http://{second}/"))
    site.at(second, "/", tagged(title="Second", tag="2"))
    site.at(third, "/", tagged(title="Third", tag="3"))
    assert shell.crawl(f"http://{first}/", "--delay", "0", "--name", "moved").code == 0
    site.at(first, "/", redirect(f"http://{third}/"))
    result = shell.crawl("--name", "moved", "--again")
    assert result.code == 0, result.err
    rows = shell.rows()
    assert set(rows) == {f"http://{second}/", f"http://{third}/"}
    assert first in rows[f"http://{second}/"]["redirects"]
    assert [request.status for request in site.requests(second) if not request.is_robots] == [200, 304]


def test_names_that_share_an_address_are_visited_again(site: Site, shell: Shell) -> None:
    name = site.name()
    site.at(name, "/", tagged("/a", title="Home", tag="h"))
    site.at(name, "/a", tagged(title="A", tag="a"))
    assert shell.crawl(f"http://{name}/", "--delay", "0", "--by-address", "--name", "shared").code == 0
    since = len(site.requests(name))
    result = shell.crawl("--name", "shared", "--again")
    assert result.code == 0, result.err
    assert statuses_since(site, name, since) == {"/": 304, "/a": 304}


@pytest.mark.chaos
def test_a_killed_pass_is_resumed_and_visits_nothing_twice(site: Site, shell: Shell) -> None:
    hosts = site.take(2)
    for host in hosts:
        for number in range(60):
            links = [f"/{next_}" for next_ in (2 * number + 1, 2 * number + 2) if next_ < 60]
            site.at(host, f"/{number}", tagged(*links, title=f"{number}", tag=f"{number}"))
    seeds = [f"http://{host}/0" for host in hosts]
    result = shell.crawl(*seeds, "--delay", "0", "--name", "twice")
    assert result.code == 0, result.err
    assert len(shell.rows()) == 120
    since = {host: len(site.requests(host)) for host in hosts}
    for host in hosts:
        # Found in the middle of the pass, by a link alone.
        site.at(host, "/7", tagged("/late", title="7", tag="changed"))
        site.at(host, "/late", tagged(title="late", tag="late"))
        for number in (20, 40, 59):
            site.at(host, f"/{number}", Response(body=html(title="slow"), etag='"slow"', after=0.3))
    running = shell.start("crawl", "--name", "twice", "--again", *LOCAL)
    wait_until(lambda: all(len(site.requests(host)) > since[host] + 25 for host in hosts), "pages are requested again")
    running.kill_all()
    result = shell.crawl("--name", "twice", "--again")
    assert result.code == 0, result.err
    assert len(shell.rows()) == 122
    again = [request for host in hosts for request in site.requests(host)[since[host] :] if not request.is_robots]
    assert len({(request.host, request.path) for request in again}) == 122
    # Pages that were open when everything was killed are requested again; each page counts once.
    counts = shell.counts("twice")["counts"]
    assert (counts["stored"], counts["admitted"], counts["failed"]) == (122, 122, 0)


@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        (["--max-pages", "1"], "ended at its limit"),
        (["--out", "x.jsonl"], "There is no output"),
    ],
)
def test_a_crawl_that_cannot_be_visited_again_is_reported_in_one_sentence(
    site: Site, shell: Shell, first: list[str], sentence: str
) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a", "/b"))
    shell.crawl(f"http://{host}/", "--delay", "0", "--name", "one", *first)
    (shell.folder / "x.jsonl").unlink(missing_ok=True)
    since = len(site.requests(host))
    result = shell.crawl("--name", "one", "--again")
    assert result.code in (1, 2)
    assert sentence in result.err
    assert len(result.err.splitlines()) == 1, result.err
    assert len(site.requests(host)) == since
    assert shell.counts("one")["state"] == "finished"


def test_again_needs_a_name(shell: Shell) -> None:
    result = shell.run("crawl", "http://127.0.0.1:9/", "--again")
    assert result.code == 2
    assert "--again needs --name" in result.err
