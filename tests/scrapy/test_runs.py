"""Runs of spiders: which share a crawl, from any program, and which start a new one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.scrapy.processes import ROOT, Process, Project, project
from tests.site.site import Site

pytestmark = pytest.mark.full


def _program(here: Project, *runs: dict[str, Any], at_once: bool = False) -> Process:
    settings = {"SCHEDULER": "shoal.scrapy.Scheduler", "ITEMS_FILE": str(here.folder / "kept"), **here.settings}
    order = json.dumps({"settings": settings, "at_once": at_once, "runs": runs})
    return here.run([sys.executable, "-m", "tests.scrapy.program", order])


def test_a_second_run_in_the_same_process_starts_from_scratch(scrapy: str, site: Site, here: Project) -> None:
    here.scrapy = scrapy
    tree = site.plant(5, site.take(1), alike=0)
    arguments = {"start": tree.url(0), "channel_id": "1"}
    _program(here, arguments, arguments).end()
    once = {f"1 {url}" for url in tree.walk()}
    assert here.keys().keys() == once
    assert all(count % 2 == 0 for count in here.keys().values()), here.keys()


def test_runs_of_one_program_with_other_arguments_are_separate_crawls(scrapy: str, site: Site, here: Project) -> None:
    here.scrapy = scrapy
    tree = site.plant(6, site.take(2))
    _program(here, *({"start": tree.url(0), "channel_id": number} for number in (1, 2, 3)), at_once=True).end()
    assert set(here.keys()) == {f"{number} {url}" for number in (1, 2, 3) for url in tree.walk()}
    assert len(set(here.keys().values())) == len({here.keys()[f"1 {url}"] for url in tree.walk()})


def test_a_program_and_the_command_line_share_a_crawl(site: Site, tmp_path: Path) -> None:
    with project(tmp_path / "project", SCHEDULER_PERSIST=1) as here:
        tree = site.plant(5, site.take(1), alike=0)
        _program(here, {"start": tree.url(0), "channel_id": 7}).end()
        made = here.keys()
        here.crawl("channel", start=tree.url(0), channel_id="7")
        assert set(made) == {f"7 {url}" for url in tree.walk()}
        assert here.keys() == made, "what it has seen is not made again"
        here.crawl("channel", start=tree.url(0), channel_id="8")
        assert len(here.keys()) == 2 * len(made)


def test_names_do_not_contain_the_values_of_arguments(site: Site, here: Project) -> None:
    tree = site.plant(2, site.take(1))
    (process,) = here.crawl("tree", start=tree.url(0), password="s3cr3t-Arg", _job="9")
    argv = [sys.executable, "-m", "shoal", "crawls"]
    listing = subprocess.run(
        argv, cwd=here.folder, capture_output=True, text=True, timeout=60, check=True, env={"PYTHONPATH": f"{ROOT}/src"}
    ).stdout
    assert "tree.password.start-" in listing
    assert "s3cr3t" not in listing
    assert "s3cr3t" not in process.output()
