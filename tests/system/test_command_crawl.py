"""`shoal crawl` from its first URL to its summary, as a process on a real site."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from tests.servers import alive, wait_until
from tests.site.responses import Response, page, robots
from tests.site.site import Site
from tests.system.shell import LOCAL, ROOT, Shell, command_line

SPIDER = """
import shoal

class Titles(shoal.Spider):
    def parse(self, page):
        yield {"titled": page.title}
        yield from page.follow("a")
"""


def test_a_site_is_crawled_to_its_end(site: Site, shell: Shell) -> None:
    hosts = site.take(3)
    tree = site.plant(60, hosts)
    seeds = [f"http://{host}/" for host in hosts[1:]]
    result = shell.crawl(tree.url(0), *seeds, "--delay", "0.02", "--name", "whole")
    assert result.code == 0, result.err
    assert result.out == ""
    rows = shell.rows()
    assert {url for url, row in rows.items() if row["status"] == 200} == tree.walk()
    assert "stored      60 pages" in result.err
    assert re.search(r"failed +2: 2 status 404", result.err)
    assert "sqlite:" + str(shell.folder / "pages.db") in result.err
    assert "The user agent has no contact" in result.err
    judge = site.judge(*hosts)
    assert not judge.impolite(0.02)
    assert not judge.repeated()
    # Nothing is left but the store and the pages.
    assert sorted(path.name for path in shell.folder.iterdir()) == [".shoal", "pages.db"]
    assert list((shell.folder / ".shoal/workers").iterdir()) == []


def test_each_output_gets_every_page_once(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    tree = site.plant(30, [host])
    who = "tests/1.0 (+https://example.org/bot)"
    result = shell.crawl(
        tree.url(0), "--delay", "0", "--user-agent", who, "--out", "a.db", "--out", "b.jsonl", "--workers", "2"
    )
    assert result.code == 0, result.err
    assert "contact" not in result.err
    assert set(shell.rows("a.db")) == tree.walk()
    assert sorted(shell.lines("b.jsonl")) == sorted(tree.walk())


def test_seeds_are_read_from_files_and_from_standard_input(site: Site, shell: Shell) -> None:
    first, second, third = site.take(3)
    (shell.folder / "seeds.txt").write_text(f"# mine\n\nhttp://{first}/a\n")
    # A bare host is meant as http, as for curl and wget.
    result = shell.crawl("--seeds", "seeds.txt", f"{second}/b?c", "--delay", "0", "--no-follow")
    assert result.code == 1, result.err
    result = shell.crawl("--seeds", "-", "--delay", "0", stdin=f"http://{third}/c\n")
    assert [path for host in (first, second, third) for path in site.judge(host).paths(host)] == [
        "/robots.txt", "/a", "/robots.txt", "/b?c", "/robots.txt", "/c",
    ]  # fmt: skip


def test_a_crawl_without_any_page_exits_with_an_error(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    result = shell.crawl(f"http://{host}/missing", "--delay", "0")
    assert result.code == 1
    assert "1 status 404" in result.err


@pytest.mark.full
def test_a_finished_crawl_is_reported_and_sends_no_requests(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page())
    assert shell.crawl(f"http://{host}/", "--delay", "0", "--name", "one").code == 0
    before = len(site.requests(host))
    result = shell.crawl("--name", "one")
    assert result.code == 0
    assert "Crawl one is already finished" in result.err
    assert "--retry" not in result.err
    assert len(site.requests(host)) == before


def test_a_finished_crawl_with_failures_names_the_command_that_retries_them(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    assert shell.crawl(f"http://{host}/missing", "--delay", "0", "--name", "one").code == 1
    result = shell.crawl("--name", "one")
    assert "Retry 1 failed URL with: shoal failed one --retry\n" in result.err


def test_limits_and_scope_are_enforced(site: Site, shell: Shell) -> None:
    hosts = site.take(2)
    tree = site.plant(40, hosts)
    result = shell.crawl(tree.url(0), "--delay", "0", "--scope", "any", "--max-pages", "7")
    assert result.code == 0, result.err
    assert len(shell.rows()) == 7
    before = len(site.requests(*hosts))
    result = shell.crawl(tree.url(0), "--delay", "0", "--out", "deep.db", "--max-depth", "1", "--deny", "/3$")
    assert result.code == 0, result.err
    # Page 0 on the first host leads to pages 1, 2 and 3, of which 2 is on the same host.
    assert set(shell.rows("deep.db")) == {tree.url(0), tree.url(2)}
    assert len(site.requests(*hosts)) - before <= 3


def test_robots_txt_is_obeyed_unless_it_is_to_be_ignored(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /private\n"))
    site.at(host, "/", page("/private", "/open"))
    site.at(host, "/private", page())
    site.at(host, "/open", page())
    result = shell.crawl(f"http://{host}/", "--delay", "0")
    assert result.code == 0, result.err
    assert "1 robots.txt" in result.err
    assert site.judge(host).times(f"http://{host}/private") == 0
    result = shell.crawl(f"http://{host}/", "--delay", "0", "--ignore-robots", "--out", "all.db")
    assert f"http://{host}/private" in shell.rows("all.db")


@pytest.mark.full
def test_the_summary_reports_traps_files_and_items(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/events?date=2150-01-01", "/events?date=2150-01-02", "/a"))
    site.at(host, "/a", page())
    (shell.folder / "mine.py").write_text(SPIDER)
    result = shell.crawl(
        f"http://{host}/", "--delay", "0", "--workers", "1", "--files", "kept", "--spider", "mine.py:Titles",
        "--name", "told",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "Starting crawl told with 1 worker." in result.err
    assert re.search(r"^  traps +2 links not followed: 2 calendar$", result.err, re.M), result.err
    assert re.search(rf"^  files +file:{shell.folder}/kept$", result.err, re.M)
    (look,) = re.findall(r"^  try +(.*)$", result.err, re.M)
    assert "data from items where crawl = 'told'" in look
    assert (
        subprocess.run(shlex.split(look), capture_output=True, text=True, check=True, cwd=shell.folder).stdout.count(
            "titled"
        )
        == 2
    )
    result = shell.crawl(f"http://{host}/", "--delay", "0", "--follow-traps", "--out", "all.jsonl", "--log", "json")
    end = json.loads(result.err.splitlines()[-1])
    assert (end["failed"], end["trapped"]) == (2, {})
    assert "  " not in end["message"]


@pytest.mark.full
def test_a_crawl_of_a_spider_is_resumed_with_it(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    tree = site.plant(300, [host])
    (shell.folder / "mine.py").write_text(SPIDER)
    with_spider = ("--spider", "mine.py:Titles", "--name", "mine")
    running = shell.start("crawl", tree.url(0), *LOCAL, *with_spider, "--delay", "0.1", "--workers", "1")
    wait_until(lambda: len(site.requests(host)) > 3, "some pages are fetched")
    result = running.end(signal.SIGINT)
    assert result.code == 130, result.err
    again = "shoal crawl --name mine --spider mine.py:Titles --allow-network 127.0.0.0/8"
    assert f"Resume with: {again}\n" in result.err
    assert "again. Resume with: shoal crawl --name mine --spider FILE.py:Titles --allow-network 127.0.0.0/8\n" in (
        shell.run("failed", "mine", "--retry").err
    )
    running = shell.start(*again.split()[1:], "--workers", "1")
    running.wait_for_output("Resuming crawl mine with 1 worker.")
    # It began with a URL, which its spider does not know.
    wait_until(lambda: len(running.workers()) == 1, "its worker runs")
    result = running.end(signal.SIGINT)
    assert re.search(r"^  time +[\d.]+ s in this run, ", result.err, re.M), result.err


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.variant)])
def test_a_signal_pauses_the_crawl_and_its_name_resumes_it(site: Site, shell: Shell, how: int) -> None:
    hosts = site.take(2)
    tree = site.plant(60, hosts)
    running = shell.start("crawl", tree.url(0), *LOCAL, "--scope", "any", "--delay", "0.05", "--name", "mine",
                          "--out", "pages.jsonl", "--out", "pages.db")  # fmt: skip
    wait_until(lambda: len(site.requests(*hosts)) > 15, "some pages are fetched")
    result = running.end(how)
    assert result.code == 130, result.err
    assert result.err.count("is paused") == 1
    assert "\nResume with: shoal crawl --name mine" in result.err
    status = shell.counts("mine")
    assert status["state"] == "paused"
    assert status["counts"]["leased"] == 0
    assert 0 < status["counts"]["stored"] < 60
    # Pages that were stored before the end can be read now.
    assert len(shell.lines()) == status["counts"]["stored"] == len(shell.rows())
    result = shell.crawl("--name", "mine", "--delay", "3")
    assert result.code == 0, result.err
    assert "Resuming crawl mine" in result.err
    assert "--delay is ignored: an existing crawl keeps its original settings" in result.err
    assert set(shell.rows()) == tree.walk()
    assert sorted(shell.lines()) == sorted(tree.walk())
    judge = site.judge(*hosts)
    assert not judge.impolite(0.05)
    # F2: a polite end costs not one request.
    assert not judge.repeated()


@pytest.mark.full
def test_a_second_signal_stops_everything_at_once(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", Response(fault="silent"))
    # Longer than this test waits: nothing else ends it.
    shell.environ |= {"SHOAL_WORKER_GRACE_SECONDS": "600", "SHOAL_FRONTIER_LEASE_SECONDS": "600"}
    running = shell.start("crawl", f"http://{host}/", *LOCAL, "--timeout", "600", "--name", "slow")
    wait_until(lambda: any(request.path == "/" for request in site.requests(host)), "the slow page is requested")
    workers = running.workers()
    assert workers
    running.process.send_signal(signal.SIGINT)
    running.wait_for_output("Press Ctrl-C again to quit now")
    assert running.end(signal.SIGINT).code == 130
    wait_until(lambda: not any(map(alive, workers)), "the workers are gone")
    # The visits of the killed workers are taken back at once: no lease has to expire.
    site.at(host, "/", page())
    result = shell.crawl("--name", "slow")
    assert result.code == 0, result.err
    assert shell.rows()[f"http://{host}/"]["status"] == 200


@pytest.mark.full
def test_an_interrupted_crawl_is_paused_when_another_one_starts(site: Site, shell: Shell) -> None:
    first, second = site.take(2)
    tree = site.plant(50, [first])
    site.at(second, "/", page())
    running = shell.start("crawl", tree.url(0), *LOCAL, "--delay", "0.1", "--name", "old")
    wait_until(lambda: len(site.requests(first)) > 5, "some pages are fetched")
    workers = running.workers()
    running.end(signal.SIGKILL)
    wait_until(lambda: not any(map(alive, workers)), "the workers have ended")
    result = shell.crawl(f"http://{second}/", "--delay", "0", "--name", "new")
    assert result.code == 0, result.err
    assert "Crawl old was interrupted; it is now paused. Resume with: shoal crawl --name old" in result.err
    assert shell.counts("old")["state"] == "paused"


@pytest.mark.full
def test_two_crawls_in_one_folder_do_not_disturb_each_other(site: Site, shell: Shell) -> None:
    long_host, short_host = site.take(2)
    long, short = site.plant(40, [long_host]), site.plant(10, [short_host])
    first = shell.start("crawl", long.url(0), *LOCAL, "--delay", "0.05", "--name", "long", "--out", "long.jsonl")
    first.wait_for_output("Starting crawl long")
    second = shell.start("crawl", short.url(0), *LOCAL, "--delay", "0.05", "--name", "short", "--out", "short.jsonl")
    result = second.end()
    assert result.code == 0, result.err
    assert "interrupted" not in result.err
    result = first.end()
    assert result.code == 0, result.err
    assert sorted(shell.lines("short.jsonl")) == sorted(short.walk())
    assert sorted(shell.lines("long.jsonl")) == sorted(long.walk())
    assert not site.judge(long_host, short_host).impolite(0.05)


@pytest.mark.full
def test_secrets_appear_in_no_command_line_and_no_message(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", Response(body="x", after=2))
    running = shell.start(
        "crawl", f"http://{host}/", *LOCAL, "--name", "secret", "--auth", "ann:s3cret-a", "--cookie", "id=s3cret-b",
        "--header", "X-Key: s3cret-c", "--proxy", "", fork=False,
    )  # fmt: skip
    wait_until(lambda: any(request.path == "/" for request in site.requests(host)), "the page is requested")
    workers = running.workers()
    assert workers
    for pid in workers:
        assert b"s3cret" not in command_line(pid)
    result = running.end()
    assert result.code == 0
    assert "s3cret" not in result.err + result.out
    shown = shell.run("show", "secret", "--json")
    assert "s3cret" not in shown.out
    assert '"X-Key": "***"' in shown.out


def test_flags_become_options_of_the_crawl(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page())
    flags = ("--sitemaps", "--priority", "4", "--files", "kept", "--file-types", "image/,Application/PDF",
             "--file-types", "x/")  # fmt: skip
    rules = []
    for name, typed in (("plain", ()), ("ruled", flags)):
        result = shell.crawl(f"http://{host}/", "--delay", "0", "--name", name, *typed)
        assert result.code == 0, result.err
        status = shell.counts(name)
        rules.append({**status["policy"], **status["limits"]})
    expected = {
        "sitemaps": True, "priority": 4, "files": f"file:{shell.folder}/kept",
        "file_types": ["image/", "application/pdf", "x/"],
    }  # fmt: skip
    assert {field: rules[1][field] for field in expected} == expected
    assert {field for field in rules[0] if rules[0][field] != rules[1][field]} == set(expected)


def test_shells_complete_commands_flags_and_files(shell: Shell) -> None:
    def completed(*words: str) -> list[str]:
        shell.environ = {"_SHOAL_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("shoal", *words)),
                         "COMP_CWORD": str(len(words))}  # fmt: skip
        return shell.run().out.split()

    assert completed("cra") == ["plain,crawl", "plain,crawls"]
    assert {"plain,--max-pages", "plain,--max-depth"} <= set(completed("crawl", "--max-"))
    assert completed("crawl", "--scope", "d") == ["plain,domain"]
    assert completed("crawl", "--seeds", "x") == ["file,x"]
    assert completed("crawl", "--folder", "x") == ["dir,x"]
    shell.environ = {}
    for name in ("bash", "zsh", "fish"):
        result = shell.run("completion", name)
        assert result.code == 0, result.err
        assert f"_SHOAL_COMPLETE={name}_complete" in result.out
    result = shell.run("completion", "csh")
    assert result.code == 2
    assert "'csh' is not one of" in result.err


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed: apt install bash")
def test_bash_accepts_the_completion_script(shell: Shell) -> None:
    (shell.folder / "bin").mkdir()
    run = shell.folder / "bin/shoal"
    run.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}/src exec {sys.executable} -m shoal "$@"\n')
    run.chmod(0o755)
    script = shell.run("completion", "bash").out
    program = script + '\nCOMP_WORDS=(shoal exp); COMP_CWORD=1; _shoal_completion shoal; echo "got ${COMPREPLY[*]}"\n'
    path = f"{shell.folder / 'bin'}:{os.environ['PATH']}"
    result = subprocess.run(["bash", "-c", program], capture_output=True, text=True, env={**os.environ, "PATH": path})
    assert result.stdout.splitlines()[-1] == "got explain export", result


def test_links_that_a_page_has_too_many_of_are_counted(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a", f"/{'b' * 9000}"))
    site.at(host, "/a", page())
    result = shell.crawl(f"http://{host}/", "--delay", "0")
    assert result.code == 0, result.err
    assert "1 link not followed: 1 links per page" in result.err
