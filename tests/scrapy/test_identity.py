"""Which requests are duplicates: by Scrapy's rules, or the project's own, for the whole fleet."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.scrapy.processes import project
from tests.site.responses import page
from tests.site.site import Site

_OWN = "tests.scrapy.spiders.judging"
_CASES: dict[str, tuple[dict[str, Any], set[str]]] = {
    # Scrapy: the order of a query does not matter, everything else does.
    "scrapy": ({}, {"0", "1", "2", "9"}),
    "ours": ({"DUPEFILTER_CLASS": "shoal.scrapy.DupeFilter", "DUPEFILTER_DEBUG": 1}, {"0", "1", "2", "9"}),
    "a fingerprinter": ({"REQUEST_FINGERPRINTER_CLASS": f"{_OWN}.BySession"}, {"0", "2", "3", "9"}),
    "a filter of Scrapy's kind": ({"DUPEFILTER_CLASS": f"{_OWN}.Named"}, {"0", "2", "3", "9"}),
    "a filter of our kind": ({"DUPEFILTER_CLASS": f"{_OWN}.NamedOurs"}, {"0", "2", "3", "9"}),
    "no filter": ({"DUPEFILTER_CLASS": f"{_OWN}.Nothing"}, {"0", "1", "2", "3", "4", "9"}),
}


@pytest.mark.full
def test_the_duplicate_rules_of_the_project_apply(site: Site, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        running = []
        for name, (settings, expected) in _CASES.items():
            host = site.take(1)[0]
            site.at(host, "*", page())
            here = stack.enter_context(project(tmp_path / name, **settings))
            running.append((name, here, here.start("judging", start=f"http://{host}/"), expected))
        for name, here, process, expected in running:
            process.end()
            assert here.keys() == dict.fromkeys(expected, 1), name
            # A request is sent as it was yielded, whatever its fingerprint.
            urls = {item["key"]: item["url"].rpartition("/")[2] for item in here.items()}
            assert (urls["0"], urls["2"], urls["9"]) == ("a?session=1", "b?x=1&y=2", "a?session=3"), name
            assert process.stat("dupefilter/filtered") == 6 - len(expected), name
