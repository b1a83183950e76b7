"""`shoal change` and PATCH /v1/crawls: other options for a running crawl, applied by all of its workers."""

from __future__ import annotations

import signal

import pytest

from shoal.client import Client
from shoal.errors import CrawlEnded, InvalidInput
from tests.api.process import serve_api
from tests.servers import wait_until
from tests.site.responses import page
from tests.site.site import Site
from tests.system.shell import LOCAL, Shell

pytestmark = pytest.mark.full


@pytest.mark.smoke
def test_new_patterns_exclude_waiting_urls_and_a_preview_counts_them(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    old, new = [f"/old/{n}" for n in range(40)], [f"/new/{n}" for n in range(10)]
    site.at(host, "/", page(*old, *new))
    for path in old + new:
        site.at(host, path, page())
    running = shell.start("crawl", f"http://{host}/", "--delay", "0.5", "--workers", "2", "--name", "far", *LOCAL)
    wait_until(lambda: len(site.requests(host)) >= 4, "it runs")
    result = shell.run("change", "far", "--deny", "/old/", "--preview")
    assert result.code == 0, result.err
    assert "Preview: would change --deny of crawl far." in result.err
    assert "The new rules exclude" in result.err
    assert shell.counts("far")["policy"]["deny"] == []
    # Workers notice new patterns within seconds; until then they continue at the new delay.
    result = shell.run("change", "far", "--deny", "/old/", "--delay", "0.4")
    assert result.code == 0, result.err
    assert "Changed --delay, --deny of crawl far." in result.err
    assert running.end().code == 0
    counts = shell.counts("far")
    requested = {request.path for request in site.requests(host) if request.path.startswith("/old/")}
    assert counts["excluded"]["scope: deny pattern /old/"] == 40 - len(requested) > 20
    assert {request.path for request in site.requests(host)} >= set(new)
    assert counts["limits"]["delay_seconds"] == 0.4


def test_an_impossible_change_is_refused_in_one_sentence(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a"))
    site.at(host, "/a", page())
    assert "Nothing to change" in shell.run("change", "far").err
    running = shell.start("crawl", f"http://{host}/", "--delay", "0", "--name", "kept", "--every", "1h", *LOCAL)
    wait_until(lambda: len(site.requests(host)) >= 3, "it runs")
    for options, refused in (
        (["--max-pages", "5"], "every cannot be combined with max_pages"),
        (["--deny", "("], "deny pattern '(' does not compile"),
        (["--every", "daily"], "every is 'daily'"),
    ):
        result = shell.run("change", "kept", *options)
        assert result.code == 2
        assert refused in result.err
    assert "has these options already" in shell.run("change", "kept", "--every", "1h").err
    assert "Changed --every of crawl kept" in shell.run("change", "kept", "--every", "2h").err
    running.end(signal.SIGINT)
    shell.run("stop", "kept")
    assert "only a running or paused crawl can be changed" in shell.run("change", "kept", "--delay", "1").err


def test_the_api_changes_options_and_previews_them(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a", "/b.zip"))
    with serve_api(shell.folder / "served", "--folder", shell.folder / "store") as api:
        client: Client = api.client
        (shell.folder / "out").mkdir()
        crawl = client.submit(seeds=[f"http://{host}/"], name="far", outputs=[str(shell.folder / "out/pages.db")])["id"]
        report = client.change(crawl, preview=True, deny_extensions=["zip"], max_depth=0)
        assert report == {
            "id": "far", "changed": ["deny_extensions", "max_depth"] if report["changed"][0] == "deny_extensions" else
            ["max_depth", "deny_extensions"], "waiting": 1, "removed": 0, "all_read": True, "applied": False,
        }  # fmt: skip
        assert client.crawl(crawl)["limits"]["max_depth"] is None
        assert client.change(crawl, delay_seconds=3.0, deny=["/a"])["applied"]
        assert client.crawl(crawl)["limits"]["delay_seconds"] == 3
        assert client.crawl(crawl)["policy"]["deny"] == ["/a"]
        with pytest.raises(InvalidInput):
            client.change(crawl, seeds=["http://x.example/"])
        with pytest.raises(InvalidInput):
            client.change(crawl, delay_seconds=-1)
        client.stop(crawl)
        with pytest.raises(CrawlEnded):
            client.change(crawl, delay_seconds=1)
