"""examples/scrapy_project as the guide tells to run it: two processes, one of them killed, every page once."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from pathlib import Path

import pytest

from tests.scrapy.processes import ROOT, project
from tests.servers import wait_until
from tests.site.answers import robots
from tests.site.site import serving

pytestmark = pytest.mark.full


def test_the_example_of_the_guide_survives_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "scrapy_project"
    shutil.copytree(
        ROOT / "examples" / "scrapy_project", folder, ignore=shutil.ignore_patterns(".shoal", "*.db", "__pycache__")
    )
    with serving(tmp_path / "site", hosts=1) as site, project(tmp_path) as here:
        (host,) = site.take(1)
        tree = site.plant(25, [host])
        site.at(host, "/robots.txt", robots("User-agent: *\nDisallow:\n"))
        argv = [sys.executable, "-m", "scrapy", "crawl", "pages", "-a", f"start={tree.url(0)}"]
        first, second = (here.run(argv, folder) for _ in range(2))
        wait_until(lambda: len(site.requests()) > 8 and "Spider opened" in first.said(), "they are at work")
        first.kill()
        assert "Closing spider (finished)" in second.end()
        with sqlite3.connect(folder / "books.db") as database:
            rows = database.execute("SELECT url, title FROM pages").fetchall()
        assert dict(rows) == {url: f"Page {url.rpartition('/')[2]}" for url in tree.walk()}
        assert not site.judge().impolite(0.2)
        assert site.judge().times(f"http://{host}/robots.txt") == 1
