"""What a spider class can have besides its callbacks: arguments, settings of its crawls, pipelines, `closed`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.errors import InvalidInput, InvalidLimit
from tests.site.responses import page
from tests.site.site import Site
from tests.system.shell import Shell

pytestmark = pytest.mark.full

LOCAL = {"fetch.allow_networks": "127.0.0.0/8"}

SHELF = """
import os
import shoal

def loud(item):
    return item | {"title": item["title"].upper()}

async def without_b(item):
    return None if item["title"] == "B" else item

class Shelf(shoal.Spider):
    settings = {"delay_seconds": 0.01, "max_depth": 1, "headers": {"X-Shelf": "7"}, "retries": 0}
    pipelines = [loud, without_b]
    category = "all"

    def start(self):
        yield f"{self.site}/{self.category}"

    def parse(self, page):
        yield {"title": page.title, "category": self.category}
        yield from page.follow("a", callback=self.parse)

    def closed(self, reason):
        with open("closed", "a") as file:
            file.write(f"{reason} {os.getpid()}\\n")
"""


@pytest.fixture
def shelf(site: Site, shell: Shell) -> str:
    (host,) = site.take()
    site.at(host, "/sea", page("/a", "/b", title="sea"))
    site.at(host, "/a", page("/deeper", title="a"))
    site.at(host, "/b", page(title="b"))
    site.at(host, "/deeper", page(title="deeper"))
    (shell.folder / "shelf.py").write_text(SHELF)
    return f"http://{host}"


@pytest.mark.smoke
def test_a_command_passes_arguments_and_uses_the_settings_of_the_class(site: Site, shell: Shell, shelf: str) -> None:
    result = shell.crawl(
        "--spider", "shelf.py:Shelf", "-a", f"site={shelf}", "--argument", "category=sea", "--name", "s",
        "--out", "s.jsonl", "--workers", "2",
    )  # fmt: skip
    assert result.code == 0, result.err
    items = [json.loads(line) for line in (shell.folder / "s.jsonl").read_text().splitlines()]
    assert sorted(item["title"] for item in items) == ["A", "SEA"]
    assert {item["category"] for item in items} == {"sea"}
    shown = shell.counts("s")
    assert (shown["limits"]["delay_seconds"], shown["limits"]["max_depth"]) == (0.01, 1)
    requests = site.requests(shelf.removeprefix("http://"))
    assert {request.headers.get("x-shelf") for request in requests} == {"7"}
    # Each worker that had a page has closed its spider, once.
    ends = (shell.folder / "closed").read_text().splitlines()
    assert {end.split()[0] for end in ends} == {"finished"}
    assert len({end.split()[1] for end in ends}) == len(ends)
    # Flags take precedence over the class.
    result = shell.crawl(
        "--spider",
        "shelf.py:Shelf",
        "-a",
        f"site={shelf}",
        "-a",
        "category=sea",
        "--max-depth",
        "2",
        "--out",
        "t.jsonl",
    )
    assert result.code == 0, result.err
    assert "DEEPER" in (shell.folder / "t.jsonl").read_text()


def test_arguments_are_not_shown(shell: Shell) -> None:
    result = shell.run(
        "submit", "http://a.example/", "--spider", "S", "-a", "password=s3cret", "--out", "x.db", "--name", "c"
    )
    assert result.code == 0, result.err
    for args in (("show", "c"), ("show", "c", "--json"), ("crawls",)):
        assert "s3cret" not in shell.run(*args).out


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("-a", "site"), "--argument number 1 has no equals sign: write NAME=VALUE."),
        (("-a", "no name=1"), "Invalid argument 'no name' of the spider"),
        (("-a", "parse=1"), "Spider Shelf takes no argument 'parse': this is one of its methods."),
        ((), "start of Shelf failed: AttributeError: 'Shelf' object has no attribute 'site'."),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_reported_before_the_crawl(shell: Shell, args: tuple[str, ...], sentence: str) -> None:
    (shell.folder / "shelf.py").write_text(SHELF)
    result = shell.crawl("--spider", "shelf.py:Shelf", *args)
    assert result.code in (1, 2)
    assert sentence in result.err


class Plain(shoal.Spider):
    def parse(self, page: shoal.Page) -> Iterator[Any]:
        yield {"title": page.title, **vars(self)}


def test_python_passes_arguments_too(site: Site) -> None:
    (host,) = site.take()
    site.at(host, "/", page(title="x"))
    how: dict[str, Any] = {"delay_seconds": 0, "settings": LOCAL}
    assert list(shoal.crawl(f"http://{host}/", spider=Plain, arguments={"tide": "low"}, **how)) == [
        {"title": "x", "tide": "low"}
    ]

    class Strict(Plain):
        def __init__(self, tide: str = "high") -> None:
            self.tide = tide

    with pytest.raises(InvalidInput, match="Spider Strict does not take these arguments: got an unexpected keyword"):
        shoal.crawl(f"http://{host}/", spider=Strict, arguments={"wind": "1"}, **how)
    with pytest.raises(InvalidLimit, match="arguments need a spider"):
        shoal.crawl(f"http://{host}/", arguments={"wind": "1"}, **how)


def test_wrong_settings_of_a_class_are_reported(site: Site) -> None:
    class Wrong(Plain):
        settings = {"delay": 1}  # noqa: RUF012

    class Odd(Plain):
        settings = {"max_pages": "many"}  # noqa: RUF012

    with pytest.raises(
        InvalidInput, match="settings of spider Wrong has no argument delay; did you mean delay_seconds"
    ):
        shoal.crawl("http://a.example/", spider=Wrong)
    with pytest.raises(InvalidInput, match="Invalid settings of spider Odd: Expected `int`"):
        shoal.crawl("http://a.example/", spider=Odd)


def test_an_error_in_closed_is_printed_and_does_no_harm(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    class Ends(Plain):
        async def closed(self, reason: str) -> None:
            raise ValueError(f"it is {reason}")

    (host,) = site.take()
    site.at(host, "/", page(title="x"))
    crawl = shoal.crawl(f"http://{host}/", spider=Ends, delay_seconds=0, settings=LOCAL)
    assert len(list(crawl)) == 1
    assert "ValueError: it is finished" in capfd.readouterr().err


def test_a_pipeline_that_fails_fails_its_page(site: Site, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Piped(Plain):
        pipelines = (lambda item: item["no such"],)

    (host,) = site.take()
    site.at(host, "/", page(title="x"))
    crawl = shoal.crawl(f"http://{host}/", spider=Piped, delay_seconds=0, settings=LOCAL)
    assert list(crawl) == []
    assert crawl.counts.reasons == {"failed:spider: KeyError": 1}
    assert "no such" in capfd.readouterr().err
