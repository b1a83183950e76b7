"""The example projects, run as their pages describe: one process is killed, every page is stored once."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scrapy.processes import ROOT, project
from tests.servers import server, wait_until
from tests.sinks.databases import PASSWORD, Database, mariadb
from tests.site.responses import Response, page, robots
from tests.site.site import Site, serving

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
        wait_until(lambda: len(site.requests()) > 8 and "Spider opened" in first.output(), "they are at work")
        first.kill()
        assert "Closing spider (finished)" in second.end()
        with sqlite3.connect(folder / "books.db") as database:
            rows = database.execute("SELECT url, title FROM pages").fetchall()
        assert dict(rows) == {url: f"Page {url.rpartition('/')[2]}" for url in tree.walk()}
        assert not site.judge().impolite(0.2)
        assert site.judge().times(f"http://{host}/robots.txt") == 1


def test_the_example_with_mysql_survives_a_kill(tmp_path: Path) -> None:
    """Two processes that wait and one that is started by hand, on two channels, each of which is a crawl."""
    pytest.importorskip("asyncmy", reason="asyncmy is not installed; run: pip install 'shoal[mysql]'")
    folder = tmp_path / "scrapy_mysql"
    shutil.copytree(ROOT / "examples" / "scrapy_mysql", folder, ignore=shutil.ignore_patterns(".shoal", "__pycache__"))
    with (
        mariadb() as database, serving(tmp_path / "site", hosts=1) as site, server(tmp_path / "store") as store,
        project(tmp_path) as here, pytest.MonkeyPatch.context() as environ,
    ):  # fmt: skip
        (host,) = site.take(1)
        titles = {channel: plant_videos(site, host, channel) for channel in ("7", "8")}
        for name, value in {
            "MYSQL_PORT": database.port, "MYSQL_USER": "shoal", "MYSQL_PASSWORD": PASSWORD, "MYSQL_DATABASE": "shoal",
            "DOWNLOAD_DELAY": 0.05,
        }.items():  # fmt: skip
            environ.setenv(name, str(value))
        settings = folder / "videos" / "settings.py"
        settings.write_text(settings.read_text() + f"REDIS_URL = {store.url!r}\nTELNETCONSOLE_ENABLED = False\n")
        by_hand = [sys.executable, "-m", "scrapy", "crawl", "channel", "-a", f"site=http://{host}", "-a", "channel=7"]
        started = [here.run(argv, folder) for argv in (by_hand, *[[sys.executable, "-m", "shoal.scrapy"]] * 2)]
        submit = [sys.executable, "-m", "shoal", "submit", "--spider", "channel", "--store", store.url]
        here.run([*submit, "-a", f"site=http://{host}", "-a", "channel=8"], folder).end()
        wait_until(lambda: len(site.requests()) > 20, "they are at work")
        started[0].kill()
        again = here.run(by_hand, folder)
        assert "Closing spider (finished)" in again.end()
        wait_until(lambda: len(_rows(database)) == 40, f"all rows; {_rows(database)}")
        for channel, title, thumbnail in _rows(database):
            assert title in titles[channel]
            assert (folder / "files" / thumbnail).read_text() == f"image of {title}"
        assert not site.judge().impolite(0.05)


def plant_videos(site: Site, host: str, channel: str) -> set[str]:
    """Two pages of ten videos each, with a thumbnail each. Returns their titles."""
    titles = set()
    for number in range(20):
        title = f"Video {channel}-{number}"
        titles.add(title)
        image = site.at(host, f"/image/{channel}/{number}.png", Response(body=f"image of {title}", type="image/png"))
        site.at(host, f"/video/{channel}/{number}", page(body=f'<h1>{title}</h1><img class="thumbnail" src="{image}">'))
    for first, path in ((0, f"/channel/{channel}"), (10, f"/channel/{channel}/2")):
        links = "".join(f'<a class="video" href="/video/{channel}/{first + n}">v</a>' for n in range(10))
        following = f'<a class="next" href="/channel/{channel}/2">next</a>' if not first else ""
        site.at(host, path, page(body=links + following))
    return titles


def _rows(database: Database) -> list[list[str]]:
    """Channel, title and thumbnail of each video; none before the table exists."""
    with contextlib.suppress(subprocess.CalledProcessError):
        text = database.sql("SELECT channel, title, thumbnails FROM videos").decode()
        return [line.split("\t") for line in text.splitlines()]
    return []
