"""Three processes that are killed repeatedly, with robots.txt on another host, a feed and files.

Nothing is lost and nothing is in the feed twice, and the web server's log has no short gap. KILL_RUNS=10 repeats it.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scrapy.processes import Project, project
from tests.servers import server, wait_until
from tests.site.responses import Response, page, redirect, robots
from tests.site.site import Site, serving

pytestmark = [pytest.mark.chaos, pytest.mark.full]

_RUNS = int(os.environ.get("KILL_RUNS", "1"))
_PROCESSES = 3
_KILLS = 4
_EVERY_SECONDS = 2.0
_DELAY = 0.1
_PAGES = 60


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with serving(tmp_path / "site", hosts=4) as served:
        yield served


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Project]:
    settings: dict[str, Any] = {
        "FILES_STORE": tmp_path / "files", "DOWNLOAD_DELAY": _DELAY, "ROBOTSTXT_OBEY": 1,
        "FEEDS": json.dumps({str(tmp_path / "items.jsonl"): {"format": "jsonlines"}}),
        "SHOAL_FRONTIER_LEASE_SECONDS": 3,
    }  # fmt: skip
    with server(tmp_path / "store") as store, project(tmp_path / "project", REDIS_URL=store.url, **settings) as opened:
        yield opened


def _plant(site: Site, pages: list[str], rules: str, files: str) -> dict[str, list[str]]:
    """Pages on some hosts, whose robots.txt are on another one, each with a file. Returns the files of each page."""
    for host in pages:
        site.at(host, "/robots.txt", redirect(f"http://{rules}/robots.txt"))
    site.at(rules, "/robots.txt", robots("User-agent: *\nDisallow: /private\n"))
    site.at(files, "/robots.txt", redirect(f"http://{rules}/robots.txt"))
    hosts = [*pages, rules]
    urls = [f"http://{hosts[number % len(hosts)]}/{number}" for number in range(_PAGES)]
    image_of = {}
    for number, url in enumerate(urls):
        host, _, path = url.removeprefix("http://").partition("/")
        image = f"http://{files}/{number}.png"
        image_of[url] = [image]
        links = [*urls[3 * number + 1 : 3 * number + 4], f"http://{host}/private/{number}"]
        site.at(host, f"/{path}", page(*links, body=f'<img src="{image}">'))
        site.at(files, f"/{number}.png", Response(body=f"image {number}", type="image/png"))
    return image_of


@pytest.mark.parametrize("run", range(_RUNS))
def test_a_repeatedly_killed_fleet_loses_nothing_and_keeps_every_delay(
    run: int, site: Site, here: Project, tmp_path: Path
) -> None:
    first, second, rules, files = site.take(4)
    image_of = _plant(site, [first, second], rules, files)
    rng = random.Random(run)
    start = f"http://{first}/0"
    for _ in range(_PROCESSES):
        here.start("with_files", start=start)
    here.wait_for_items(1)
    for _ in range(_KILLS):
        time.sleep(_EVERY_SECONDS * rng.random())
        if living := here.living():
            rng.choice(living).kill()
            here.start("with_files", start=start)
    wait_until(lambda: not here.living(), "all processes close by themselves")
    feed = [json.loads(line) for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    assert Counter(item["key"] for item in feed) == dict.fromkeys(image_of, 1)
    for item in feed:
        assert [file["url"] for file in item["files"]] == image_of[item["key"]]
        assert (tmp_path / "files" / item["files"][0]["path"]).read_text().startswith("image ")
    judge = site.judge()
    assert not judge.impolite(_DELAY)
    assert not judge.forbidden(lambda host, path: not path.startswith("/private"))
