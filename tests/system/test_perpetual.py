"""`shoal crawl --every`: a perpetual crawl revisits its pages, and reports each change once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
from collections import Counter
from functools import partial
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import pytest

from tests.servers import wait_until
from tests.site.changing_site import changing
from tests.site.responses import Response, html
from tests.site.site import Site
from tests.system.shell import LOCAL, Shell

pytestmark = pytest.mark.full


def version(number: int, *links: str, tag: bool = True) -> Response:
    return Response(body=html(links, f"Version {number}"), etag=f'"v{number}"' if tag else "")


def changes(shell: Shell, name: str = "changes.jsonl") -> list[dict[str, Any]]:
    path = shell.folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def kinds(shell: Shell, path: str) -> list[str]:
    """The changes of a page by the visits that found them: in a file, rows of two workers may be in any order."""
    rows = [row for row in changes(shell) if row["_url"].endswith(path)]
    return [row["change"] for row in sorted(rows, key=lambda row: row["_number"])]


def visits(site: Site, host: str, path: str) -> int:
    return sum(request.path == path for request in site.requests(host))


def test_a_perpetual_crawl_reports_new_changed_missing_and_returned_pages(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", version(1, "/same", "/moving", "/leaving"))
    site.at(host, "/same", version(1))
    site.at(host, "/moving", version(1, tag=False))
    site.at(host, "/leaving", version(1))
    running = shell.start(
        "crawl", f"http://{host}/", "--delay", "0", "--every", "1s", "--name", "live", "--out", "pages.db",
        "--changes", "changes.jsonl", *LOCAL,
    )  # fmt: skip
    wait_until(lambda: visits(site, host, "/same") >= 3, "it is visited again and again")
    status = shell.counts("live")
    assert status["state"] == "running"
    assert status["counts"]["stored"] == 4
    assert status["limits"]["every"] == "1s"
    assert "revisits" in shell.run("show", "live").out
    assert {request.status for request in site.requests(host) if request.path == "/same"} == {200, 304}
    # A page without validators is sent again, and does not count as changed.
    site.at(host, "/moving", version(2, tag=False))
    site.at(host, "/leaving", Response(status=404))
    site.at(host, "/", version(2, "/same", "/moving", "/leaving", "/fresh"))
    site.at(host, "/fresh", version(1))
    wait_until(lambda: kinds(shell, "/leaving") == ["new", "gone"], "the page is reported as gone")
    site.at(host, "/leaving", version(3))
    wait_until(lambda: kinds(shell, "/moving") == ["new", "changed"], "the change is reported")
    wait_until(lambda: kinds(shell, "/fresh") == ["new"], "the new page is reported")
    wait_until(lambda: kinds(shell, "/leaving")[2:] == ["back"], "the page is back")
    assert running.end(signal.SIGINT).code in (0, 130)
    assert kinds(shell, "/same") == ["new"]
    rows = {url.rpartition("/")[2]: row for url, row in shell.rows().items()}
    assert rows["moving"]["title"] == "Version 2"
    assert rows["moving"]["changes"] == 1
    assert rows["moving"]["first_seen"] < rows["moving"]["last_changed"]
    assert rows["same"]["visits"] >= 3
    assert rows["same"]["changes"] == 0
    assert rows["leaving"]["error"] is None
    (moved,) = [row for row in changes(shell) if row["change"] == "changed" and row["_url"].endswith("/moving")]
    assert moved["new_hash"] == rows["moving"]["text_hash"] != moved["old_hash"]
    # It resumes where it was.
    before = visits(site, host, "/same")
    again = shell.start("crawl", "--name", "live", *LOCAL)
    wait_until(lambda: visits(site, host, "/same") > before + 1, "it is resumed")
    assert shell.run("stop", "live").code == 0
    assert again.end().code == 1


def test_a_page_that_stays_missing_is_dropped_with_a_record_unless_its_host_fails(site: Site, shell: Shell) -> None:
    here, failing = site.take(2)
    site.at(here, "/", version(1, "/left"))
    site.at(here, "/left", version(1))
    site.at(failing, "/", version(1, "/more"))
    site.at(failing, "/more", version(1))
    running = shell.start(
        "crawl", f"http://{here}/", f"http://{failing}/", "--delay", "0", "--every", "1s", "--name", "live",
        "--out", "pages.db", "--changes", "changes.jsonl", *LOCAL,
    )  # fmt: skip
    wait_until(lambda: visits(site, here, "/left") >= 2 and visits(site, failing, "/more") >= 2, "pages are visited")
    site.shut(failing)
    site.at(here, "/left", Response(status=410))

    def missed() -> list[float]:
        return [request.began for request in site.requests(here) if request.path == "/left" and request.status == 410]

    refused = visits(site, failing, "/more")
    wait_until(lambda: len(missed()) == 2, "it is gone")
    assert visits(site, failing, "/more") == refused
    site.open(failing)
    wait_until(lambda: len(missed()) == 4, "it is visited two times, and rarely after that")
    _, second, third, fourth = missed()
    # Rarely is ten of the shortest interval. The margin is for a bucket of the calendar and for loaded machines.
    assert min(third - second, fourth - third) > 8
    wait_until(lambda: visits(site, failing, "/more") > refused + 1, "the host that failed is visited again")
    wait_until(lambda: shell.counts("live")["counts"]["excluded"] == 1, "the page is dropped")
    before = visits(site, here, "/")
    wait_until(lambda: visits(site, here, "/") > before + 2, "the crawl resumes")
    assert running.end(signal.SIGINT).code in (0, 130)
    assert len(missed()) == 4
    assert kinds(shell, f"{here}/left") == ["new", "gone"]
    assert kinds(shell, f"{failing}/") == kinds(shell, f"{failing}/more") == ["new"]
    rows = shell.rows()
    assert (rows[f"http://{here}/left"]["status"], rows[f"http://{here}/left"]["visits"] >= 5) == (410, True)
    assert rows[f"http://{failing}/more"]["status"] == 200


@pytest.mark.smoke
def test_pages_that_change_at_random_are_all_visited_within_the_budget_and_each_change_is_reported_once(
    tmp_path: Path, shell: Shell
) -> None:
    """The short form of `make bench ARGS=revisit`, which measures how old the copy gets."""
    rng = random.Random(8)
    rates = [2.0, 0.7, 0.2, 0.05, 0.001] * 6
    moments = [list(accumulate(rng.expovariate(rate) for _ in range(int(300 * rate) + 1))) for rate in rates]
    budget, pages = 15, len(rates)
    with changing(tmp_path / "changing", [moments]) as site:
        (shell.folder / "seeds").write_text("\n".join(site.url(0, page) for page in range(pages)))
        running = shell.start(
            "crawl", "--seeds", "seeds", "--delay", "0", "--every", "1s..4s", "--budget", f"{budget}/s",
            "--name", "live", "--out", "pages.db", "--changes", "changes.jsonl", *LOCAL,
        )  # fmt: skip

        def times() -> Counter[int]:
            return Counter(visit.page for visit in site.log())

        wait_until(lambda: len(times()) == pages and min(times().values()) >= 4, "no page is left out")
        assert running.end(signal.SIGINT).code in (0, 130)
        log = site.log()
    # The first visit of a page is not a revisit. Slots are given a second ahead.
    visited: set[int] = set()
    revisits = [visit.moment for visit in log if visit.page in visited or visited.add(visit.page)]  # type: ignore[func-returns-value]
    for number, moment in enumerate(revisits):
        later = [other for other in revisits[number:] if other <= moment + 3]
        assert len(later) <= budget * (3 + 1) + 1, f"{len(later)} revisits within 3 s"
    for page in range(pages):
        seen = [visit.version for visit in log if visit.page == page]
        page_changes = sorted(
            (row for row in changes(shell) if row["_url"].endswith(f"/p{page}")), key=lambda row: int(row["_number"])
        )
        assert [int(row["title"].split()[1]) for row in page_changes] == [version for version, _ in groupby(seen)]
        assert [row["change"] for row in page_changes] == ["new"] + ["changed"] * (len(page_changes) - 1)


def test_an_adaptive_crawl_visits_pages_that_change_more_often_within_its_budget(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    still, moving = [f"/s{n}" for n in range(12)], ["/m0", "/m1"]
    site.at(host, "/", version(1, *still, *moving))
    for path in still + moving:
        site.at(host, path, version(1))
    running = shell.start(
        "crawl", f"http://{host}/", "--delay", "0", "--every", "1s..1h", "--budget", "4/s", "--name", "live",
        "--out", "pages.db", *LOCAL,
    )  # fmt: skip
    number = 1

    def more(than: int) -> bool:
        return visits(site, host, "/m0") > than

    while visits(site, host, "/m0") < 25:
        number += 1
        for path in moving:
            site.at(host, path, version(number))
        wait_until(partial(more, visits(site, host, "/m0")), "it comes back")
    running.end(signal.SIGINT)
    often = min(visits(site, host, path) for path in moving)
    assert all(visits(site, host, path) < often for path in still)


def test_differences_and_the_last_versions_of_a_page_are_stored_in_a_database(site: Site, shell: Shell) -> None:
    (host,) = site.take()

    def show(number: int, second: int = 0) -> None:
        body = f"<p>Always here.<p>Version {'_ABCDE'[number]}.<p>Made at 10:15:{second}."
        site.at(host, "/", Response(body=html((), "Manual", "", body)))

    show(1)
    refused = shell.run("crawl", f"http://{host}/", "--every", "1s", "--changes", "c.jsonl", "--change-diffs", *LOCAL)
    assert refused.code == 2
    assert "a database in changes" in refused.err
    running = shell.start(
        "crawl", f"http://{host}/", "--delay", "0", "--every", "1s", "--name", "live", "--out", "pages.db",
        "--changes", "changes.db", "--changes", "changes.jsonl", "--change-diffs", "--keep-versions", "3",
        "--ignore-numbers", *LOCAL,
    )  # fmt: skip

    def reported_changes() -> list[dict[str, Any]]:
        result = shell.run("changes", "live", "--json")
        return [json.loads(line) for line in result.out.splitlines()] if result.code == 0 else []

    for number in range(1, 6):
        show(number)
        wait_until(lambda: len(reported_changes()) == number, f"version {number} is reported")  # noqa: B023
        if number == 2:
            before = visits(site, host, "/")
            show(number, second=59)
            wait_until(lambda: visits(site, host, "/") > before + 2, "the page with another time is visited")  # noqa: B023
            assert len(reported_changes()) == number
        if number == 3:
            for pid in running.workers()[:1]:
                os.kill(pid, signal.SIGKILL)
    running.end(signal.SIGINT)
    first, *later = reported_changes()
    assert "diff" not in first or first["diff"] == ""
    for number, row in enumerate(later, 2):
        lines = row["diff"].splitlines()
        assert f"-Version {'_ABCDE'[number - 1]}." in lines
        assert f"+Version {'_ABCDE'[number]}." in lines
        assert " Always here." in lines
    with contextlib.closing(sqlite3.connect(shell.folder / "changes.db")) as connection:
        kept = connection.execute(
            "SELECT data->>'$.text', data->>'$.text_hash' FROM items WHERE spider = 'versions' ORDER BY fetched_at"
        ).fetchall()
    assert ["Version C." in text for text, _ in kept] == [True, False, False]
    assert [text_hash for _, text_hash in kept] == [row["new_hash"] for row in later[1:]]
    # A file cannot take texts back, so it has none.
    assert {row["_spider"] for row in changes(shell)} == {"changes"}
    assert changes(shell)[-1]["diff"] == later[-1]["diff"]
