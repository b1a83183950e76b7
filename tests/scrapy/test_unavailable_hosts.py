"""Hosts whose robots.txt cannot be fetched: every errback gets the cause, and the crawl is finished by itself.

Scrapy 2.13.0 drops the output of errbacks (2.13.1 has the correction), so these run on the installed release only.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scrapy.processes import Project, project
from tests.servers import wait_until
from tests.site.responses import Response, page, redirect, robots
from tests.site.site import Site

pytestmark = pytest.mark.full

_REFUSED = {"ConnectionRefusedError", "DownloadConnectionRefusedError"}
_UNRESOLVED = {"DNSLookupError", "CannotResolveHostError"}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Project]:
    with project(tmp_path / "project", ROBOTSTXT_OBEY=1, RETRY_TIMES=1) as opened:
        yield opened


def _causes(here: Project) -> dict[str, set[str]]:
    causes: dict[str, set[str]] = {}
    for item in here.items():
        causes.setdefault(item["key"], set()).add(str(item["cause"]))
    return causes


@pytest.mark.smoke
@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.variant)])
def test_each_errback_of_a_host_that_never_responds_gets_the_cause(site: Site, here: Project, count: int) -> None:
    dead, well = site.take(2)
    site.shut(dead)
    site.at(well, "/", page())
    refused = [f"http://{dead}/{number}" for number in range(40)]
    unresolved = ["http://nowhere.invalid/1", "http://nowhere.invalid/2"]
    started = here.crawl("errbacks", count=count, urls=",".join([*refused, *unresolved, f"http://{well}/"]))
    causes = _causes(here)
    assert causes.keys() == {*refused, *unresolved, f"http://{well}/"}
    assert all(causes[url] <= _REFUSED for url in refused), causes
    assert all(causes[url] <= _UNRESOLVED for url in unresolved), causes
    assert causes[f"http://{well}/"] == {"200"}
    assert max(here.keys().values()) == 1
    output = "\n".join(process.output() for process in started)
    assert "(robots.txt: refused): its requests fail" in output
    assert "(robots.txt: unresolved): its requests fail" in output
    assert "timed out" not in output


def test_a_host_whose_robots_txt_keeps_failing_is_given_up(site: Site, here: Project) -> None:
    (here.folder / "shoal.toml").write_text("[frontier]\nhost_failures = 2\n")
    broken, elsewhere = site.take(2)
    site.at(broken, "/robots.txt", robots("busy", status=503))
    site.at(elsewhere, "/robots.txt", redirect(f"http://{broken}/robots.txt"))
    urls = [f"http://{broken}/1", f"http://{broken}/2", f"http://{elsewhere}/1"]
    here.crawl("errbacks", urls=",".join(urls))
    assert _causes(here) == {url: {"HostUnavailable"} for url in urls}
    assert set(site.judge(broken).paths(broken)) == {"/robots.txt"}


def test_pages_of_a_host_whose_robots_txt_recovers_are_requested(site: Site, here: Project) -> None:
    late = site.take(1)[0]
    site.at(late, "/robots.txt", *[robots("busy", status=503)] * 2, robots("User-agent: *\nDisallow: /b\n"))
    site.at(late, "/a", page())
    here.crawl("errbacks", urls=f"http://{late}/a,http://{late}/b")
    assert _causes(here) == {f"http://{late}/a": {"200"}, f"http://{late}/b": {"IgnoreRequest"}}
    assert Counter(site.judge(late).paths(late)) == {"/robots.txt": 3, "/a": 1}


def test_files_of_a_host_whose_robots_txt_is_unavailable_fail_with_a_warning(site: Site, here: Project) -> None:
    well, dead = site.take(2)
    site.shut(dead)
    image = f"http://{dead}/a.png"
    url = site.at(well, "/", Response(body=f'<img src="{image}">'))
    (process,) = here.crawl("with_files", settings={"FILES_STORE": here.folder / "files"}, start=url)
    assert set(here.keys()) == {url}
    assert "(robots.txt: refused)" in process.output()
    (warning,) = [line for line in process.output().splitlines() if image in line and "WARNING" in line]
    assert "refused" in warning
    assert "Forbidden by robots.txt" not in process.output()


def test_a_crawl_with_dead_late_and_redirected_hosts_finishes_by_itself(site: Site, here: Project) -> None:
    """One host is dead, one serves its robots.txt with 503 for 30 s, and others redirect theirs to another host."""
    dead, late, moved, to_dead, to_late = site.take(5)
    site.shut(dead)
    site.at(late, "/robots.txt", robots("busy", status=503))
    site.at(moved, "/robots.txt", redirect(f"http://{moved}/rules"))
    site.at(moved, "/rules", robots("User-agent: *\nDisallow: /b\n"))
    site.at(to_dead, "/robots.txt", redirect(f"http://{dead}/robots.txt"))
    site.at(to_late, "/robots.txt", redirect(f"http://{late}/robots.txt"))
    for host in (late, moved, to_dead, to_late):
        site.at(host, "/a", page())
    urls = [f"http://{host}{path}" for host in (dead, late, moved, to_dead, to_late) for path in ("/a", "/b")]
    processes = [here.start("errbacks", urls=",".join(urls)) for _ in range(2)]
    wait_until(lambda: any(request.host == late for request in site.requests(late)), "the late host is requested")
    time.sleep(30)
    site.at(late, "/robots.txt", robots("User-agent: *\nDisallow: /b\n"))
    for process in processes:
        assert "Closing spider (finished)" in process.end()
    causes = _causes(here)
    assert causes.keys() == set(urls)
    assert max(here.keys().values()) == 1
    for path in ("/a", "/b"):
        assert causes[f"http://{dead}{path}"] <= _REFUSED
        assert causes[f"http://{to_dead}{path}"] <= {*_REFUSED, "HostUnavailable"}
    assert (causes[f"http://{moved}/a"], causes[f"http://{moved}/b"]) == ({"200"}, {"IgnoreRequest"})
    for host in (late, to_late):
        # Given up after five failures, which a slow machine reaches before the 30 s are over.
        assert causes[f"http://{host}/a"] in ({"200"}, {"HostUnavailable"})
        assert causes[f"http://{host}/b"] in ({"IgnoreRequest"}, {"HostUnavailable"})
