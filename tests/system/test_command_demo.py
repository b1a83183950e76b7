"""`shoal demo` as a program: what it prints, what it leaves behind, and that it detects violations."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.shell import Shell

# The same demo with a judge that wants more than it gets: it must not look away.
STRICTER = (
    "import shoal.cli.demo.site as d; d.Sites.delay = lambda self, site: 0.5; from shoal.cli import start; start()"
)
UNRULY = (
    "import shoal.politeness.robots_parser as r, shoal.cli.demo.site as d; d._ROBOTS['news'] = ''; "
    "from shoal.cli import start; start()"
)
# A web server that is interrupted before it writes to its log, as on a busy machine.
INTERRUPTED_SERVER = (
    "import time, shoal.cli.demo.site as d; add = d.Sites.add_to_log; "
    "d.Sites.add_to_log = lambda *request: (time.sleep(0.05), add(*request)); from shoal.cli import start; start()"
)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "here").mkdir()
    shell = Shell(tmp_path / "here", environ={"TMPDIR": str(tmp_path / "tmp")})
    yield shell
    shell.close()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_demo_reports_its_guarantees(shell: Shell) -> None:
    for _ in range(2):  # the second one replaces the results of the first
        result = shell.run("demo")
        assert result.code == 0, result.err
        assert "All 37 pages are stored exactly once, and no host got a request too soon." in result.out
        gaps = re.findall(r"^(\w+) +\d+ +\d+ +1 +(\d\.\d+) s +(\d\.\d+) s$", result.out, re.M)
        assert len(gaps) == 4
        assert all(float(gap) >= float(delay) for _, gap, delay in gaps)
        assert "2 redirect, 2 robots.txt" in result.err
        assert re.search(r"redirect +http://\S+/catalogue \(301\) -> http://\S+/all-books", result.out)
        assert re.search(r"failed +http://\S+/lost-book: status 404", result.out)
        assert max(map(len, result.out.splitlines())) <= 100
    assert sorted(path.name for path in (shell.folder / "shoal-demo").iterdir()) == ["pages.db", "pages.jsonl"]
    assert len(shell.rows("shoal-demo/pages.db")) == 38


@pytest.mark.full
def test_a_demo_on_a_busy_machine_sees_no_request_too_early(shell: Shell) -> None:
    result = shell.start("demo", program=("-c", INTERRUPTED_SERVER)).end()
    assert result.code == 0, result.err


@pytest.mark.full
@pytest.mark.parametrize(
    ("program", "sentence"),
    [(STRICTER, "s after the previous one"), (UNRULY, "pages of 37 are missing")],
)
def test_a_demo_in_which_a_guarantee_is_broken_reports_it(shell: Shell, program: str, sentence: str) -> None:
    result = shell.start("demo", program=("-c", program)).end()
    assert result.code == 1, result.err
    assert sentence in result.err


def test_an_interrupted_demo_leaves_nothing_running(shell: Shell) -> None:
    running = shell.start("demo")
    running.wait_for_output("Starting crawl demo")
    result = running.end(signal.SIGINT)
    assert result.code == 130, result.err
