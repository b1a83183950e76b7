"""`shoal delete` on a store and on an API, and commands that need the store itself when they are given an API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.api.process import serve_api
from tests.system.shell import Shell

pytestmark = pytest.mark.full

URL = "http://example.org/"


def check(shell: Shell) -> None:
    """What holds on a store and on an API."""
    assert shell.run("submit", URL, "--out", "main", "--name", "old", "--spider", "nobody").code == 0
    result = shell.run("delete", "old")
    assert result.code == 1
    assert result.err.startswith("shoal: Crawl 'old' is running: stop it before you delete it.")
    assert shell.run("stop", "old").code == 0
    result = shell.run("delete", "old")
    assert (result.code, result.out) == (0, "")
    assert result.err.startswith("Crawl old is deleted.")
    result = shell.run("crawls")
    assert (result.out, result.err) == ("", "The store has no crawls.\n")
    result = shell.run("delete", "old")
    assert result.code == 1
    assert "There is no crawl 'old'" in result.err
    # Its id stays taken.
    assert shell.run("submit", URL, "--out", "main", "--name", "old").code == 1


@pytest.mark.smoke
def test_an_ended_crawl_is_deleted_from_a_store(shell: Shell) -> None:
    result = shell.run("delete", "old")
    assert result.code == 1
    assert "No store found" in result.err
    check(shell)


def test_an_ended_crawl_is_deleted_through_an_api(shell: Shell, tmp_path: Path) -> None:
    with serve_api(tmp_path / "served") as api:
        shell.environ = {"SHOAL_STORE": api.url}
        check(shell)


@pytest.mark.parametrize(
    "args",
    [("doctor",), ("dump",), ("load",), ("listen", "redis://127.0.0.1:1/0/x"), ("serve",), ("worker",), ("crawl", URL)],
)  # fmt: skip
def test_a_command_that_needs_the_store_itself_reports_it(args: tuple[str, ...], shell: Shell) -> None:
    result = shell.run(*args, "--store", "http://me:hush@127.0.0.1:1")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        f"shoal: `shoal {args[0]}` needs the store itself: on the URL of an API only submit, crawls, show, explain, "
        "pause, resume, stop, delete, change, touch, failed, revisit, forget and hosts work.\n"
    )


def test_the_url_of_an_api_may_be_in_the_settings(shell: Shell, tmp_path: Path) -> None:
    with serve_api(tmp_path / "served") as api:
        (shell.folder / "shoal.toml").write_text(f'[store]\nurl = "{api.url}"\n')
        assert shell.run("submit", URL, "--out", "main", "--name", "set", "--spider", "nobody").out == "set\n"
        assert "set" in shell.run("crawls").out
        assert "needs the store itself" in shell.run("doctor").err


def test_submit_accepts_extensions_and_the_names_of_outputs(shell: Shell) -> None:
    (shell.folder / "shoal.toml").write_text('[outputs]\nmain = "main.db"\n')
    result = shell.run(
        "submit", URL, "--out", "main", "--name", "x", "--deny-extension", "zip", "--deny-extension", "tar.gz"
    )
    assert result.code == 0
    status = json.loads(shell.run("show", "x", "--json").out)
    assert status["policy"]["deny_extensions"] == ["zip", "tar.gz"]
    result = shell.run("submit", URL, "--out", "mian")
    assert (result.code, result.out) == (2, "")
    assert "Unknown output 'mian'; the outputs are main." in result.err
