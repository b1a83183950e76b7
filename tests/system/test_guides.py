"""Every command of the README and the guides is run as its reader types it, and prints the output of the page.

A page shows commands in blocks of the language `console`. `$ ` begins a command; `one$ ` and `two$ ` say in which of
two shells; `> ` continues it; `^C` is Ctrl-C to what runs in that shell; `kill %1` ends its first job; all other
lines are what it prints. `...` stands for any lines. A block that begins with `# NAME.py` is a file of that name, in
the folder of the commands. Ports, folders and the address of a site are put in the place of those of the page. Times,
sizes and rates may differ; so may counts in a block in which something is interrupted or killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.servers import alive, free_port, program, valkey_server, wait_until

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "README.md",
    *(f"docs/guides/{name}.md" for name in (
        "quickstart", "resuming", "several-machines", "responsible-crawling", "first-crawler", "spiders", "planning",
        "developing", "service", "keep-fresh",
    )),
]  # fmt: skip
# Blocks without commands, and commands that cannot be run here, with the reason.
NOT_RUN = {
    # Needs a registry of packages; every other test runs in what it makes.
    ("docs/guides/quickstart.md", "sh"),
    ("README.md", "sh"),
    # Compared with the example itself by tests/unit/test_reference.py.
    ("docs/guides/first-crawler.md", "python"),
    # Lines out of programs that the page shows whole, or that tests/system/test_python.py runs.
    ("docs/guides/spiders.md", "python"),
    ("docs/guides/spiders.md", "toml"),
}
SITE = {
    "index.html": '<title>Home</title> <a href="a.html">A</a> <a href="b.html">B</a>',
    "a.html": "<title>A</title>",
    "b.html": "<title>B</title>",
}
# Lines that depend on time: the progress of a crawl, and its bottleneck if it ran long enough.
_PROGRESS = r" +\d+\.\d s  [\d,]+ pages, .*\n"
_LIMIT = r"  bottleneck +.*\n"
# What may differ in a line, and what may stand there instead.
_DIFFERS = {
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d",
    r"[\d.]+ (?:pages/s|pages/min|s)\b": r"[\d.,]+ (?:pages/s|pages/min|s)",
    r"[\d.]+ (?:bytes|kB|MB)\b": r"[\d.,]+ (?:bytes|kB|MB)",
    r"\d+ workers\b": r"\d+ workers?",
    r"\d+ pages with\b": r"\d+ pages? with",
    r"(?<=machine-two-)[0-9a-f]{6}": r"[0-9a-f]{6}",
    r" {2,}": r" +",
}
_COUNT = {r"\b\d+\b": r"\d+"}


@dataclass
class Step:
    """One command of a page, or a Ctrl-C, with the lines that the page shows."""

    shell: str
    command: str
    loose: bool
    prints: list[str] = field(default_factory=list)


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """The language and the text of each block."""
    yield from re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)


def file_of(text: str) -> str:
    """The name of the file that a block is, '' for one that is none."""
    named = re.match(r"# (\w+\.(?:py|toml))\n", text)
    return named[1] if named else ""


def steps(page: str) -> list[Step]:
    steps: list[Step] = []
    for language, text in blocks(page):
        if language != "console":
            continue
        loose = "^C" in text or "kill -9" in text
        for line in text.splitlines():
            if command := re.match(r"(\w*)\$ (.*)", line):
                steps.append(Step(command[1], command[2], loose))
            elif line == "^C":
                steps.append(Step(steps[-1].shell, "^C", loose))
            elif line.startswith(">") and not steps[-1].prints:
                steps[-1].command += "\n" + line[1:].removeprefix(" ")
            else:
                steps[-1].prints.append(line)
    return steps


def pattern(lines: list[str], loose: bool) -> str:
    """What an output must match; lines that come by the clock may come anywhere."""
    anywhere = f"(?:{_PROGRESS}|{_LIMIT})*"
    parts = []
    for line in lines:
        if line == "...":
            parts.append(r"(?:.*\n)*?")
        elif re.fullmatch(_PROGRESS, f"{line}\n"):
            parts.append(_PROGRESS + anywhere)
        elif not re.fullmatch(_LIMIT, f"{line}\n"):
            parts.append(one_line(line, _DIFFERS | _COUNT if loose else _DIFFERS) + anywhere)
    return "".join(parts)


def one_line(line: str, differs: dict[str, str]) -> str:
    built, done = "", 0
    # One group for each: the number of the group is that of the match.
    for match in re.finditer("|".join(f"({what})" for what in differs), line):
        built += re.escape(line[done : match.start()]) + list(differs.values())[(match.lastindex or 1) - 1]
        done = match.end()
    return built + re.escape(line[done:]) + r"\n"


@dataclass
class Running:
    process: subprocess.Popen[bytes]
    command: str
    output: Path
    read: int = 0

    def new_output(self) -> str:
        return self.output.read_text()[self.read :]

    def prints(self, step: Step, lines: list[str], *, ended: bool) -> None:
        """Compare the new output with the page. Each part is compared once."""
        if lines:
            expected = pattern(lines, step.loose)
            if not ended:
                with contextlib.suppress(AssertionError):
                    wait_until(lambda: re.match(expected, self.new_output()), step.command)
            matched = re.match(expected + (r"\Z" if ended else ""), self.new_output())
            assert matched, "\n".join([step.command, "the page says:", *lines, "it printed:", self.new_output()])
            self.read += matched.end()


@dataclass
class Reader:
    """Runs the commands of a page in a folder of its own."""

    folder: Path
    instead: dict[str, str]
    environ: dict[str, str]
    exported: dict[str, str] = field(default_factory=dict)
    at_work: dict[str, Running] = field(default_factory=dict)
    started: list[Running] = field(default_factory=list)
    # What runs in the background of each shell, by the numbers that `jobs` shows.
    jobs: dict[str, dict[int, Running]] = field(default_factory=dict)

    def follow(self, page: str) -> None:
        todo = steps(page)
        assert todo
        for _, text in blocks(page):
            if name := file_of(text):
                (self.folder / "here" / name).write_text(self.here(text))
        for number, step in enumerate(todo):
            following = next((later for later in todo[number + 1 :] if later.shell == step.shell), None)
            self.take(step, stays=following is not None and following.command == "^C")

    def take(self, step: Step, *, stays: bool) -> None:
        lines = [self.here(line) for line in step.prints]
        if step.command == "^C":
            running = self.at_work.pop(step.shell)
            os.killpg(running.process.pid, signal.SIGINT)
            self.end(step, running, lines, 130 if "shoal crawl" in running.command else 0)
        elif re.fullmatch(r"kill( %\d+)+", step.command):
            for number in re.findall(r"%(\d+)", step.command):
                job = self.jobs[step.shell].pop(int(number))
                os.killpg(job.process.pid, signal.SIGTERM)
                job.process.wait(60)
        elif step.command.startswith(("export ", "cd ")):
            self.exported[step.shell] = self.exported.get(step.shell, "") + self.here(step.command) + "\n"
        elif step.command.endswith(" &"):
            assert not lines
            running = self.start(step.shell, self.here(step.command).removesuffix(" &"))
            jobs = self.jobs.setdefault(step.shell, {})
            jobs[max(jobs, default=0) + 1] = running
            for port in re.findall(r"(?<= )\d{4,5}(?= )", running.command):
                wait_until(lambda port=port: listens(int(port)), f"{running.command}: {running.new_output()}")  # type: ignore[misc]
        else:
            running = self.start(step.shell, self.here(step.command))
            if stays:
                running.prints(step, lines, ended=False)
                self.at_work[step.shell] = running
            else:
                self.end(step, running, lines, 0)

    def start(self, shell: str, command: str) -> Running:
        output = self.folder / f"output-{len(self.started)}"
        # Into a file: a process that outlives the command would keep a pipe open.
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", self.exported.get(shell, "") + command], cwd=self.folder / "here", env=self.environ,
                start_new_session=True, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            )  # fmt: skip
        self.started.append(Running(process, command, output))
        return self.started[-1]

    def end(self, step: Step, running: Running, lines: list[str], code: int) -> None:
        assert running.process.wait(60) == code, f"{running.command}: {running.new_output()}"
        running.prints(step, lines, ended=True)

    def here(self, text: str) -> str:
        """The page's text with the addresses and folders of this run."""
        for there, here in self.instead.items():
            text = re.sub(there, here, text)
        return text

    def close(self) -> None:
        for running in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.process.pid, signal.SIGKILL)
            running.process.wait()
        for lock in (self.folder / "here").glob("**/.shoal/store/keeper.lock"):
            if pid := lock.read_text():
                wait_until(lambda pid=pid: not alive(int(pid)), "the embedded store stops")  # type: ignore[misc]


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    program("sqlite3", "apt-get install sqlite3")
    here, programs = tmp_path / "here", tmp_path / "bin"
    here.mkdir()
    programs.mkdir()
    for name, command in {
        "python": [sys.executable],
        "python3": [sys.executable],
        "shoal": [sys.executable, "-m", "shoal"],
        "valkey-server": [valkey_server()],
    }.items():
        script(programs / name, command)
    strange = {name for name in os.environ if name.startswith("SHOAL_") or name in ("REDIS_URL", "WORKER_ID")}
    environ = {name: value for name, value in os.environ.items() if name not in strange}
    reader = Reader(
        tmp_path,
        {
            r"\b8000\b": str(free_port()),
            r"\b8001\b": str(free_port()),
            r"\b6379\b": str(free_port()),
            r"/tmp/(first|resuming|several|service)\b": rf"{here}/\1",
        },
        # A reader of a guide sits at a terminal; elsewhere, services write JSON.
        {
            **environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "SHOAL_LOG": "text",
        },
    )
    yield reader
    reader.close()


def script(path: Path, command: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    path.chmod(0o755)


def serve(reader: Reader) -> Running:
    """A site in the place of example.org."""
    folder = reader.folder / "site"
    folder.mkdir()
    for name, text in SITE.items():
        (folder / name).write_text(text)
    port = free_port()
    running = reader.start("", f"python3 -m http.server --bind 127.0.0.1 --directory {folder} {port}")
    wait_until(lambda: listens(port), "the site is there")
    reader.instead |= {
        r"(?<=crawl )https://example\.org(?= )": f"http://127.0.0.1:{port}/",
        r"https://example\.org/(?!bot)": f"http://127.0.0.1:{port}/",
        r"(?<=hosts )example\.org(?= )": f"127.0.0.1:{port}",
        r"(?<=^name {20})example\.org": f"127.0.0.1:{port}",
    }
    reader.environ["SHOAL_FETCH_ALLOW_NETWORKS"] = "127.0.0.0/8"
    return running


@pytest.mark.full
def test_the_readme_gives_the_result_that_it_shows(reader: Reader) -> None:
    serve(reader)
    # `make demo` in a copy of the repository in which everything is installed.
    here = reader.folder / "here"
    for name in ("Makefile", "src", "requirements"):
        (here / name).symlink_to(ROOT / name)
    script(here / ".venv/bin/python", [sys.executable])
    (here / ".venv/.installed-run").touch()
    reader.follow("README.md")
    with contextlib.closing(sqlite3.connect(here / "pages.db")) as pages:
        assert pages.execute("select count(*) from pages where error is null").fetchone() == (len(SITE),)


@pytest.mark.full
def test_the_quickstart_prints_the_output_that_it_shows(reader: Reader) -> None:
    reader.follow("docs/guides/quickstart.md")


@pytest.mark.full
def test_the_guide_to_resuming_prints_the_output_that_it_shows(reader: Reader) -> None:
    reader.follow("docs/guides/resuming.md")


@pytest.mark.full
def test_the_guide_to_several_machines_prints_the_output_that_it_shows(reader: Reader) -> None:
    reader.follow("docs/guides/several-machines.md")


@pytest.mark.full
def test_the_guide_to_responsible_crawling_prints_the_output_that_it_shows(reader: Reader) -> None:
    serve(reader)
    reader.follow("docs/guides/responsible-crawling.md")


@pytest.mark.full
def test_the_guide_to_a_first_crawler_prints_the_output_that_it_shows(reader: Reader) -> None:
    examples(reader)
    reader.follow("docs/guides/first-crawler.md")


def test_the_guide_to_planning_prints_the_output_that_it_shows(reader: Reader) -> None:
    reader.follow("docs/guides/planning.md")


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_guide_is_run(page: str) -> None:
    for language, text in blocks(page):
        assert language == "console" or file_of(text) or (page, language) in NOT_RUN, text


def test_a_page_with_other_output_fails_the_check() -> None:
    output = "Crawl a is finished.\n  stored    3 pages, 1.3 kB received\n"
    assert re.fullmatch(pattern(["...", "  stored    3 pages, 9.9 kB received"], loose=False), output)
    assert not re.fullmatch(pattern(["...", "  stored    4 pages, 1.3 kB received"], loose=False), output)
    assert re.fullmatch(pattern(["...", "  stored    4 pages, 1.3 kB received"], loose=True), output)
    assert not re.fullmatch(pattern(["  stored    3 pages, 1.3 kB received"], loose=False), output)
    assert not re.fullmatch(pattern(["Crawl a is finished."], loose=False), output)


def examples(reader: Reader) -> None:
    """The examples of a clone. Where a page names the port of its site, those of this run name another."""
    (reader.folder / "here/examples").mkdir()
    for path in (ROOT / "examples").glob("*.py"):
        (reader.folder / "here/examples" / path.name).write_text(reader.here(path.read_text()))


@pytest.mark.full
def test_the_guide_to_spiders_prints_the_output_that_it_shows(reader: Reader) -> None:
    examples(reader)
    reader.follow("docs/guides/spiders.md")


@pytest.mark.full
def test_the_guide_to_developing_prints_the_output_that_it_shows(reader: Reader) -> None:
    reader.follow("docs/guides/developing.md")


@pytest.mark.full
def test_all_guides_work_one_after_the_other_on_one_machine(reader: Reader) -> None:
    """As a user reads them: the same ports, the same folder to start from, and the files of earlier guides."""
    program("curl", "apt-get install curl")
    reader.instead[r"\b8080\b"] = str(free_port())
    examples(reader)
    for page in PAGES:
        if page == "README.md":
            continue
        # A new terminal for each guide.
        reader.exported.clear()
        site = serve(reader) if page.endswith("responsible-crawling.md") else None
        before = dict(reader.instead)
        reader.follow(page)
        # Processes that the guide has stopped may take a moment to end.
        left = [job.process for jobs in reader.jobs.values() for job in jobs.values()]
        wait_until(lambda: all(process.poll() is not None for process in left), f"{page} leaves nothing running")  # noqa: B023
        reader.jobs.clear()
        if site is not None:
            os.killpg(site.process.pid, signal.SIGTERM)
            site.process.wait(60)
        reader.instead = {there: here for there, here in before.items() if "example" not in there}
        reader.environ.pop("SHOAL_FETCH_ALLOW_NETWORKS", None)


def test_the_quickstart_installs_the_plain_package() -> None:
    install = next(text for language, text in blocks("docs/guides/quickstart.md") if language == "sh")
    assert "pip install .\n" in install
    assert "make install" not in install
