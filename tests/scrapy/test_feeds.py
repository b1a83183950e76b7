"""Feed exports under kill -9 and from several processes: every item of every page is in the file, once."""

from __future__ import annotations

import csv
import json
import os
import random
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.scrapy.processes import Process, Project, project
from tests.servers import WAIT_SECONDS, wait_until
from tests.site.site import Site
from tests.site.tree import Tree

pytestmark = pytest.mark.full

_Feeds = dict[str, dict[str, object]]


def _of_jsonl(path: Path) -> list[str]:
    return [json.loads(line)["key"] for line in path.read_text().splitlines()]


def _of_json(path: Path) -> list[str]:
    return [item["key"] for item in json.loads(path.read_text())]


def _of_csv(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return [row["key"] for row in csv.DictReader(file)]


def _of_xml(path: Path) -> list[str]:
    return [item.findtext("key") or "" for item in ElementTree.parse(path).getroot()]  # noqa: S314 - our own file


_READERS: dict[str, Callable[[Path], list[str]]] = {
    "jsonl": _of_jsonl, "json": _of_json, "csv": _of_csv, "xml": _of_xml,
}  # fmt: skip


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Project]:
    with project(tmp_path / "project", ITEM_PIPELINES="{}", SHOAL_FRONTIER_LEASE_SECONDS=3) as opened:
        yield opened


def _start(here: Project, tree: Tree, feeds: _Feeds, delay: float = 0.0) -> Process:
    return here.start("tree", settings={"FEEDS": json.dumps(feeds), "DOWNLOAD_DELAY": delay}, start=tree.url(0))


def test_processes_share_a_feed_and_kills_lose_no_item(scrapy: str, site: Site, here: Project) -> None:
    here.scrapy = scrapy
    tree = site.plant(60, site.take(2), alike=0)
    feeds: _Feeds = {f"items.{name}": {"format": {"jsonl": "jsonlines"}.get(name, name)} for name in _READERS}
    for _ in range(3):
        _start(here, tree, feeds, 0.1)
    chosen = random.Random(5)
    for pages in (15, 30, 45):
        wait_until(lambda: len(site.requests(*tree.hosts)) >= pages, f"{pages} pages were requested")  # noqa: B023
        chosen.choice(here.living()).kill()
        _start(here, tree, feeds, 0.1)
    for process in here.processes:
        process.popen.wait(WAIT_SECONDS)
    for name, read in _READERS.items():
        keys = Counter(read(here.folder / f"items.{name}"))
        assert keys.keys() == tree.walk(), name
        assert max(keys.values()) == 1, "a page whose lease was lost is in the file once"
    assert not list(here.folder.glob("*.parts"))


def test_a_feed_has_the_format_of_scrapy(site: Site, here: Project, tmp_path: Path) -> None:
    """Also if every process of the crawl was killed, and with -O on a file of an earlier crawl."""
    tree = site.plant(8, site.take(1), alike=0)
    names = {"items.jsonl": "jsonlines", "items.json": "json", "items.csv": "csv", "items.xml": "xml"}
    options = {"overwrite": True, "encoding": "utf-8", "fields": ["key", "title"]}
    feeds: _Feeds = {name: {"format": form, **options} for name, form in names.items()}
    for name in names:
        (here.folder / name).write_text("of an earlier crawl\n")
    first = _start(here, tree, feeds, 0.3)
    wait_until(lambda: len(site.requests(*tree.hosts)) >= 4, "half of the pages were requested")
    first.kill()
    for name in names:
        # By its clock, a machine that is slow or was set may take the files for older than the crawl.
        os.utime(here.folder / name, (0, 0))
    _start(here, tree, feeds).end()
    with project(tmp_path / "plain", SCHEDULER="scrapy.core.scheduler.Scheduler", ITEM_PIPELINES="{}") as plain:
        _start(plain, tree, feeds).end()
        for name in names:
            ours, theirs = ((folder / name).read_bytes().splitlines() for folder in (here.folder, plain.folder))
            assert sorted(line.rstrip(b",") for line in ours) == sorted(line.rstrip(b",") for line in theirs), name


@pytest.mark.parametrize(
    ("uri", "options", "reason"),
    [
        ("ftp://127.0.0.1:1/items.jsonl", {"format": "jsonlines"}, "it is stored when the spider closes"),
        ("items-%(batch_id)d.jsonl", {"format": "jsonlines", "batch_item_count": 3}, "it is split into batches"),
        ("items.pickle", {"format": "pickle"}, "its format is pickle"),
    ],
)
def test_a_feed_that_could_lose_items_is_reported_at_the_start(
    site: Site, here: Project, uri: str, options: dict[str, object], reason: str
) -> None:
    tree = site.plant(1, site.take(1))
    output = _start(here, tree, {uri: options}).end()
    (warning,) = [line for line in output.splitlines() if "WARNING: Feed" in line]
    assert f"Feed {uri}: {reason}: a process that is killed loses its items" in warning
    assert "afterwards" in warning or "Use jsonlines" in warning or "Write a local file" in warning
