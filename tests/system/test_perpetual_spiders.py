"""Spiders in a perpetual crawl: the items of a page are those of its last visit."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
from typing import Any

import pytest

from tests.servers import wait_until
from tests.site.responses import Response, page
from tests.site.site import Site
from tests.system.shell import LOCAL, Shell

pytestmark = pytest.mark.full

LIST = """
import shoal

class List(shoal.Spider):
    def parse(self, page):
        for entry in page.css("li"):
            yield {"entry": entry.text()}
"""


def entries(*names: str) -> Any:
    return page(title="List", body="<ul>" + "".join(f"<li>{name}</li>" for name in names) + "</ul>")


def rows(shell: Shell) -> list[str]:
    if not (shell.folder / "items.db").exists():
        return []
    with contextlib.closing(sqlite3.connect(shell.folder / "items.db")) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'items'").fetchone():
            return []
        return [json.loads(data)["entry"] for (data,) in connection.execute("SELECT data FROM items ORDER BY number")]


def lines(shell: Shell, name: str) -> list[dict[str, Any]]:
    path = shell.folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def reported_changes(shell: Shell) -> list[tuple[str, int]]:
    return [
        (row["change"], row["items"]) for row in sorted(lines(shell, "changes.jsonl"), key=lambda row: row["_number"])
    ]


def test_the_items_of_a_page_are_replaced_at_a_revisit_and_removed_ones_are_reported(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", entries("a", "b", "c"))
    (shell.folder / "list.py").write_text(LIST)
    running = shell.start(
        "crawl", f"http://{host}/", "--spider", "list.py:List", "--delay", "0", "--every", "1s", "--name", "live",
        "--out", "items.db", "--out", "items.jsonl", "--changes", "changes.jsonl", *LOCAL,
    )  # fmt: skip
    wait_until(lambda: rows(shell) == ["a", "b", "c"], "all items are stored")
    site.at(host, "/", entries("b", "d"))
    wait_until(lambda: rows(shell) == ["b", "d"], "the items are those of the new page")
    site.at(host, "/", entries("e"))
    wait_until(lambda: rows(shell) == ["e"], "one item is left")
    site.at(host, "/", Response(status=404))
    wait_until(lambda: reported_changes(shell)[-1:] == [("gone", 0)], "the page is gone")
    wait_until(lambda: rows(shell) == [], "a page that is gone has no items")
    assert running.end(signal.SIGINT).code in (0, 130)
    assert reported_changes(shell) == [("new", 3), ("changed", 2), ("changed", 1), ("gone", 0)]
    # A file of JSON lines has the items of every visit. Those of the last one, up to the number in the change, count.
    seen: dict[int, str] = {}
    for item in lines(shell, "items.jsonl"):
        seen[item["_number"]] = item["entry"]
    assert seen == {1: "e", 2: "d", 3: "c"}
