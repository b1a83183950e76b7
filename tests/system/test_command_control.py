"""Showing and controlling crawls while another process runs them."""

from __future__ import annotations

import re
import signal
import time

import pytest

from shoal.cli.commands.hosts import render
from tests.servers import wait_until
from tests.site.responses import page
from tests.site.site import Site
from tests.system.shell import LOCAL, Shell

pytestmark = pytest.mark.full


@pytest.mark.smoke
def test_a_crawl_is_paused_resumed_and_stopped_from_elsewhere(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    tree = site.plant(400, [host])
    running = shell.start("crawl", tree.url(0), *LOCAL, "--delay", "0.05", "--name", "far")
    wait_until(lambda: len(site.requests(host)) > 3, "it runs")
    assert "Crawl far is paused." in shell.run("pause", "far").err
    running.wait_for_output("The crawl was paused externally. Resume with: shoal resume far")
    wait_until(lambda: shell.counts("far")["counts"]["leased"] == 0, "what was leased has ended")
    before = len(site.requests(host))
    assert "Crawl far is running." in shell.run("resume", "far").err
    wait_until(lambda: len(site.requests(host)) > before + 2, "it resumes")
    assert "running" in shell.run("crawls").out
    assert "Crawl far is stopped." in shell.run("stop", "far").err
    result = running.end(seconds=30)
    assert result.code == 1
    assert "was stopped externally" in result.err
    assert len(shell.rows()) < 400
    result = shell.crawl("--name", "far")
    assert result.code == 1
    assert "is stopped and cannot be resumed" in result.err


def test_failed_urls_are_listed_and_retried_by_the_command(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/gone"))
    assert shell.crawl(f"http://{host}/", "--delay", "0", "--name", "again").code == 0
    assert shell.run("failed", "again").out == f"status 404\thttp://{host}/gone\n"
    status = shell.counts("again")
    assert status["failed"] == {"status 404": 1}
    assert status["state"] == "finished"
    site.at(host, "/gone", page())
    assert (
        "Queued 1 URL again. Resume with: shoal crawl --name again --allow-network 127.0.0.0/8\n"
        in shell.run("failed", "again", "--retry").err
    )
    result = shell.crawl("--name", "again")
    assert result.code == 0, result.err
    assert shell.rows()[f"http://{host}/gone"]["status"] == 200
    assert "excluded" not in shell.run("show", "again").out


def test_a_blocked_host_gets_no_requests(site: Site, shell: Shell) -> None:
    first, second = site.take(2)
    site.at(first, "/", page(f"http://{second}/"))
    site.at(second, "/", page())
    running = shell.start("crawl", f"http://{first}/", *LOCAL, "--name", "a", "--delay", "0")
    assert running.end().code == 0
    assert "blocked" in shell.run("hosts", second, "--block").out
    result = shell.crawl(f"http://{first}/", "--delay", "0", "--name", "b", "--scope", "any")
    assert result.code == 0, result.err
    assert site.requests(second) == []


def test_the_times_of_a_host_are_dates_and_an_unknown_host_has_none(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page())
    assert shell.crawl(f"http://{host}/", "--delay", "0").code == 0
    result = shell.run("hosts", host)
    assert re.search(r"^last finished at +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", result.out, re.M)
    assert result.err == ""
    result = shell.run("hosts")
    assert (result.out, result.err) == ("", "No host has waiting URLs.\n")
    result = shell.run("hosts", "nobody.example")
    assert "The store has no record of host nobody.example." in result.err
    assert re.search(r"^last finished at +-$", result.out, re.M)


def test_the_reason_of_a_back_off_is_shown_only_while_it_lasts(capsys: pytest.CaptureFixture[str]) -> None:
    host = {"name": "a.example", "failures": 1, "backoff_until": time.time() - 1, "backoff_reason": "status 503"}
    render(host)
    assert "status 503" not in capsys.readouterr().out
    render({**host, "backoff_until": time.time() + 60})
    assert "status 503" in capsys.readouterr().out


def test_hosts_with_waiting_urls_are_listed_and_a_delay_can_be_removed(site: Site, shell: Shell) -> None:
    first, second = site.take(2)
    for host, pages in ((first, 3), (second, 1)):
        urls = [f"http://{host}/{n}" for n in range(pages)]
        assert shell.run("submit", *urls, "--out", "pages.db", "--name", f"c{pages}").code == 0
    assert shell.run("hosts", first, "--delay", "7.5").code == 0
    assert shell.run("hosts", second, "--block").code == 0
    listed = {line.split()[4]: line.split() for line in shell.run("hosts").out.splitlines()}
    assert listed[first][:3] == ["3", "waiting", "7.50"]
    # What waited for a blocked one has failed.
    assert (listed[second][0], listed[second][-2]) == ("0", "blocked")
    result = shell.run("hosts", "--limit", "1")
    assert len(result.out.splitlines()) == 1
    assert "More hosts have waiting URLs; pass e.g. --limit 10." in result.err
    shown = shell.run("hosts", first, "--forget-delay").out
    assert re.search(r"^delay seconds +-$", shown, re.M)


def test_a_submitted_crawl_uses_the_output_named_default(shell: Shell) -> None:
    (shell.folder / "shoal.toml").write_text('[outputs]\ndefault = "pages.jsonl"\n')
    result = shell.run("submit", "http://127.0.0.1:9/", "--name", "job", "--follow-traps")
    assert (result.code, result.out) == (0, "job\n"), result.err
    policy = shell.counts("job")["policy"]
    assert policy["outputs"] == ["default"]
    assert not policy["traps"]


def test_closing_the_terminal_pauses_the_crawl(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    tree = site.plant(100, [host])
    # Tests may run under nohup, whose wish Shoal respects.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    running = shell.start("crawl", tree.url(0), *LOCAL, "--delay", "0.05", "--name", "hup")
    signal.signal(signal.SIGHUP, before)
    wait_until(lambda: len(site.requests(host)) > 3, "it runs")
    assert running.end(signal.SIGHUP).code == 130
    assert shell.counts("hup")["state"] == "paused"


def test_a_submitted_crawl_is_not_treated_as_interrupted(site: Site, shell: Shell) -> None:
    job, own = site.take(2)
    for host in (job, own):
        site.at(host, "/", page())
    result = shell.run("submit", f"http://{job}/", "--name", "job", "--out", "job.db", "--delay", "0")
    assert result.code == 0, result.err
    result = shell.crawl(f"http://{own}/", "--delay", "0")
    assert result.code == 0, result.err
    assert "interrupted" not in result.err
    assert shell.counts("job")["state"] in ("running", "finished")
