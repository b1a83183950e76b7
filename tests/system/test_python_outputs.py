"""Files of crawls from Python: complete, however the program leaves the crawl."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from tests.servers import wait_until
from tests.site.responses import Response, page
from tests.site.site import Site
from tests.system.shell import Shell

LOCAL = {"fetch.allow_networks": "127.0.0.0/8"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _urls(path: Path) -> list[str]:
    return sorted(json.loads(line)["url"] for line in path.read_text().splitlines())


def test_files_are_complete_when_the_loop_is_over(site: Site, folder: Path) -> None:
    tree = site.plant(12, site.take())
    outputs = ["pages.jsonl", "pages.csv.gz"]
    records = list(shoal.crawl(tree.url(0), outputs=outputs, delay_seconds=0, settings=LOCAL))
    assert len(records) == 12
    assert _urls(folder / "pages.jsonl") == sorted(tree.walk())
    assert len(gzip.decompress((folder / "pages.csv.gz").read_bytes()).decode().splitlines()) > 12
    assert sorted(path.name for path in folder.iterdir()) == ["pages.csv.gz", "pages.jsonl"]


def test_files_have_all_records_yielded_before_the_loop_was_left(site: Site, folder: Path) -> None:
    tree = site.plant(100, site.take())
    for record in shoal.crawl(tree.url(0), outputs=["pages.jsonl"], delay_seconds=0.02, settings=LOCAL):
        assert record.url in tree.walk()
        break
    assert record.url in _urls(folder / "pages.jsonl")
    assert [path.name for path in folder.iterdir()] == ["pages.jsonl"]


def test_the_same_call_completes_the_files_of_a_crawl_killed_at_its_end(site: Site, folder: Path) -> None:
    tree = site.plant(12, site.take())
    program = folder / "program.py"
    program.write_text(
        "import os, sys\nimport shoal, shoal.operations.run\n"
        "async def killed(*args, **more):\n    os.kill(os.getpid(), 9)\n"
        "if sys.argv[1:]:\n    shoal.operations.run.merge_outputs = killed\n"
        f"how = dict(name='mine', folder='kept', outputs=['pages.jsonl'], delay_seconds=0, settings={LOCAL})\n"
        f"print(len(list(shoal.crawl({tree.url(0)!r}, **how))))\n"
    )
    shell = Shell(folder)
    try:
        assert shell.start("die", program=(str(program),)).end().code == -9
        again = shell.start(program=(str(program),)).end()
    finally:
        shell.close()
    assert (again.code, again.out) == (0, "0\n"), again.err
    assert _urls(folder / "pages.jsonl") == sorted(tree.walk())


def test_bodies_are_stored_in_the_folder_given_by_files(site: Site, folder: Path) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a.pdf", "/b"))
    site.at(host, "/a.pdf", Response(body="%PDF-1.4", type="application/pdf"))
    site.at(host, "/b", page())
    how: dict[str, Any] = {"delay_seconds": 0, "settings": LOCAL, "by_address": True}
    records = shoal.crawl(f"http://{host}/", files="bodies", file_types=["application/pdf"], **how)
    files = {record.url: record.file for record in records}
    assert [url for url, file in files.items() if file] == [f"http://{host}/a.pdf"]
    kept = [path.read_text() for path in (folder / "bodies").rglob("*") if path.is_file()]
    assert kept == ["%PDF-1.4"]


def test_a_coordinator_finishes_and_merges_completed_crawls_when_it_stops(site: Site, folder: Path) -> None:
    tree = site.plant(20, site.take())
    long = site.plant(200, site.take())
    with shoal.Coordinator(folder="kept", workers=1, settings=LOCAL) as coordinator:
        coordinator.submit([tree.url(0)], delay_seconds=0, outputs=["done.jsonl"], name="done")
        coordinator.submit([long.url(0)], delay_seconds=0.1, outputs=["long.jsonl"], name="long")
        # The test never calls `finished`.
        wait_until(lambda: coordinator.counts("done").stored == 20, "all pages are stored")
        wait_until(lambda: coordinator.counts("long").stored > 2, "some pages are stored")
    assert _urls(folder / "done.jsonl") == sorted(tree.walk())
    stored = len(_urls(folder / "long.jsonl"))
    with shoal.Coordinator(folder="kept", workers=1, settings=LOCAL) as coordinator:
        stats = coordinator.stats()
        assert (stats.crawls, stats.running) == (2, 1)
        # The pages that the other crawl has stored are in its file, too.
        assert coordinator.counts("long").stored >= stored > 2
        coordinator.cancel("long")
