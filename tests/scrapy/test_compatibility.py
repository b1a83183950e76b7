"""Releases of Scrapy, Twisted and Python, and programs around Scrapy: the rows of the table in the guide.

A row is in the table because its test passes. Packages are fetched with pip, and pythons are those of this machine.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scrapy.packages import environment, installed
from tests.scrapy.processes import QUIET, ROOT, SPIDERS, Project, project
from tests.servers import free_port, wait_until
from tests.site.responses import Response, page, robots
from tests.site.site import Site

pytestmark = [pytest.mark.full, pytest.mark.variant]

# The last release of each minor version, with the newest Twisted that it allows, and the oldest that works.
RELEASES = [
    ("2.13.4", "25.5.0"), ("2.14.2", "25.5.0"), ("2.15.2", "25.5.0"), ("2.16.0", "26.10.0"), ("2.17.0", "26.10.0"),
    ("2.18.0", "26.10.0"), ("2.19.0", "26.10.0"), ("2.19.0", "24.11.0"),
]  # fmt: skip
PYTHONS = ["3.12", "3.13"]
EVERY = pytest.mark.skipif(
    os.environ.get("COMPATIBILITY") != "1",
    reason="Each row installs packages; the oldest and the newest release always run. For all: make compatibility",
)
SCRAPYD = ("scrapyd==1.6.0",)
PLAYWRIGHT = ("scrapy-playwright==0.0.48", "playwright==1.65.0", "pyee", "greenlet")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Project]:
    settings = {"FILES_STORE": tmp_path / "files", "ROBOTSTXT_OBEY": 1, "DOWNLOAD_DELAY": 0.02}
    with project(tmp_path / "project", **{name: str(value) for name, value in settings.items()}) as opened:
        yield opened


def _crawl_mixed(site: Site, here: Project, python: str = sys.executable) -> str:
    (host,) = site.take(1)
    site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /private\n"))
    site.at(host, "*", page())
    site.at(host, "/missing", Response(status=404))
    site.at(host, "/file", Response(body="data", type="image/png"))
    here.python = python
    first, second = here.crawl("mixed", count=2, site=f"http://{host}")
    assert {item["key"] for item in here.items()} == {"generator", "returned", "plain", "failed"}
    assert max(here.keys().values()) == 1
    (plain,) = [item for item in here.items() if item["key"] == "plain"]
    assert [file["status"] for file in plain["files"]] == ["downloaded"]
    assert not site.judge(host).impolite(0.02)
    for process in (first, second):
        assert "Closing spider (finished)" in process.output(), process.output()[-3000:]
        assert "Traceback" not in process.output(), process.output()[-3000:]
    return first.output()


@pytest.mark.parametrize(
    ("scrapy", "twisted"),
    [RELEASES[0], *(pytest.param(*release, marks=EVERY) for release in RELEASES[1:-1]), RELEASES[-1]],
)
def test_a_release_of_scrapy_with_its_twisted_works(scrapy: str, twisted: str, site: Site, here: Project) -> None:
    here.scrapy = str(installed(f"scrapy=={scrapy}", f"twisted=={twisted}"))
    output = _crawl_mixed(site, here)
    assert f"Scrapy {scrapy} started" in output
    assert re.search(rf"'?Twisted'?:? '?{re.escape(twisted)}", output)


@EVERY
@pytest.mark.parametrize("version", PYTHONS)
def test_another_version_of_python_works(version: str, site: Site, here: Project) -> None:
    output = _crawl_mixed(site, here, environment(version, f"{ROOT}[scrapy]"))
    assert re.search(rf"'?Python'?:? '?{re.escape(version)}\.", output)


def test_pages_are_rendered_by_scrapy_playwright(site: Site, here: Project) -> None:
    if shutil.which("chromium") != "/usr/bin/chromium":
        pytest.skip("chromium is not installed; run: apt-get install chromium")
    here.scrapy = str(installed(*PLAYWRIGHT))
    (host,) = site.take(1)
    script = "<p id=made></p><script>document.getElementById('made').textContent = 'made by a script'</script>"
    start = site.at(host, "/", page("/a", "/b", body=script))
    for path in ("/a", "/b"):
        site.at(host, path, page(body=script))
    settings = {"ROBOTSTXT_OBEY": 0}
    started = here.crawl("browsing", count=2, settings=settings, start=start)
    assert {item["key"]: item["text"] for item in here.items()} == dict.fromkeys(
        (start, f"{start}a", f"{start}b"), "made by a script"
    )
    pages = [request for request in site.requests(host) if request.path in ("/", "/a", "/b")]
    assert len(pages) == 3
    assert all("Traceback" not in process.output() for process in started)


def test_two_jobs_of_scrapyd_work_on_one_crawl(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "shop" / "spiders").mkdir(parents=True)
    for package in ("shop", "shop/spiders"):
        (folder / package / "__init__.py").touch()
    shutil.copy(SPIDERS / "tree.py", folder / "shop" / "spiders")
    options = {
        **QUIET, "SCHEDULER": "shoal.scrapy.Scheduler", "SPIDER_MODULES": ["shop.spiders"], "DOWNLOAD_DELAY": 0.05,
        "ITEMS_FILE": str(folder / "kept"), "SHOAL_STORE_FOLDER": str(folder / ".shoal"),
    }  # fmt: skip
    (folder / "shop" / "settings.py").write_text("".join(f"{name} = {value!r}\n" for name, value in options.items()))
    port = free_port()
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    (folder / "scrapyd.conf").write_text(
        f"[scrapyd]\nhttp_port = {port}\nbind_address = 127.0.0.1\npoll_interval = 0.2\n"
    )
    (host,) = site.take(1)
    tree = site.plant(40, [host])
    with project(folder, SHOAL="") as here:
        here.scrapy = str(installed(*SCRAPYD))
        daemon = here.run([sys.executable, "-m", "scrapyd"])
        wait_until(lambda: _scrapyd(port, "daemonstatus") or daemon.popen.poll() is not None, daemon.output())
        for _ in range(2):
            job = _scrapyd(port, "schedule", project="default", spider="tree", start=tree.url(0))
            assert job["status"] == "ok", job

        def finished() -> bool:
            return len(_scrapyd(port, "listjobs", project="default").get("finished", ())) == 2

        wait_until(finished, "both jobs are finished")
        assert set(here.keys()) == tree.walk()
    assert not site.judge(host).impolite(0.05)


def _scrapyd(port: int, call: str, **fields: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        if call == "schedule":
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", f"/{call}.json", urllib.parse.urlencode(fields), form)
        else:
            connection.request("GET", f"/{call}.json?{urllib.parse.urlencode(fields)}")
        reply: dict[str, Any] = json.loads(connection.getresponse().read())
        return reply
    except (ConnectionError, ValueError):
        return {}
    finally:
        connection.close()


def test_the_table_of_the_guide_has_these_rows() -> None:
    guide = (ROOT / "docs" / "guides" / "scrapy.md").read_text()
    for scrapy, twisted in RELEASES:
        assert f"| Scrapy {scrapy} with Twisted {twisted} |" in guide
    for version in PYTHONS:
        assert f"| Python {version} |" in guide
    for name in (SCRAPYD[0], PLAYWRIGHT[0]):
        assert f"| {name.replace('==', ' ')} |" in guide
