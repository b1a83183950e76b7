"""The display of a running crawl: in a real terminal (tmux), on a plain one, through a pipe, as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.servers import program, wait_until
from tests.site.responses import page
from tests.site.site import Site
from tests.system.shell import LOCAL, ROOT, Shell, children, is_worker

pytestmark = pytest.mark.full

LABELS = ("pages", "received", "remaining", "failed", "excluded", "hosts", "bottleneck")
NAMED = ("--user-agent", "bot/1.0 (+https://bot.example/)")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "here").mkdir()
    shell = Shell(tmp_path / "here")
    yield shell
    shell.close()


class Pane:
    """A terminal of its own, with a shell in it."""

    def __init__(self, folder: Path, columns: int, rows: int) -> None:
        # The path of a socket has at most 107 bytes, and the folder of a test may be longer.
        self.short = tempfile.TemporaryDirectory(prefix="shoal-")
        self.tmux = [program("tmux", "apt-get install tmux"), "-f", "/dev/null", "-S", f"{self.short.name}/tmux"]
        self.folder = folder
        strange = {name for name in os.environ if name.startswith("SHOAL_") or name in ("CI", "NO_COLOR", "TMUX")}
        environ = {name: value for name, value in os.environ.items() if name not in strange}
        paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environ |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "LC_ALL": "C.UTF-8"}
        size = ["-x", str(columns), "-y", str(rows)]
        bash = "exec env PS1='ready> ' bash --norc"
        subprocess.run([*self.tmux, "new-session", "-d", *size, bash], env=environ, cwd=folder, check=True)

    def ask(self, *command: str) -> str:
        return subprocess.run([*self.tmux, *command], capture_output=True, text=True, check=True).stdout

    def screen(self, *, all_lines: bool = False) -> list[str]:
        return self.ask("capture-pane", "-p", *(["-S", "-"] if all_lines else [])).splitlines()

    def type(self, text: str) -> None:
        self.ask("send-keys", "-l", text)
        self.ask("send-keys", "Enter")

    def crawl(self, *args: object) -> None:
        words = [sys.executable, "-m", "shoal", "crawl", *map(str, args), *LOCAL, *NAMED]
        (self.folder / "crawl.sh").write_text("exec " + " ".join(f"'{word}'" for word in words))
        self.type("bash crawl.sh")

    def resize(self, columns: int, rows: int) -> None:
        self.ask("resize-window", "-x", str(columns), "-y", str(rows))

    def until(self, pattern: str) -> list[str]:
        """The screen, as soon as a line of it matches."""

        def matching_lines() -> list[str]:
            lines = self.screen()
            return lines if any(re.search(pattern, line) for line in lines) else []

        lines: list[str] = wait_until(matching_lines, f"{pattern!r} on {self.screen()}")
        return lines

    def shell_pid(self) -> int:
        return int(self.ask("display-message", "-p", "#{pane_pid}"))

    def close(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.ask("kill-server")
        self.short.cleanup()


Opens = Callable[[int, int], Pane]


@pytest.fixture
def opens(tmp_path: Path) -> Iterator[Opens]:
    opened: list[Pane] = []

    def opens(columns: int, rows: int) -> Pane:
        opened.append(Pane(tmp_path, columns, rows))
        opened[-1].until("^ready>")
        return opened[-1]

    yield opens
    for pane in opened:
        pane.close()


def is_whole(lines: list[str]) -> None:
    """The frame is there once, in its order, no line of it cut by the terminal."""
    starts = [line[:10].strip() for line in lines if line[:10].strip() in LABELS]
    assert starts == list(LABELS), "\n".join(lines)
    assert sum(" URLs found" in line for line in lines) == 1, "\n".join(lines)
    assert sum(line.startswith("worker") and "waiting for" in line for line in lines) == 1, "\n".join(lines)


def is_sane(pane: Pane) -> None:
    """The terminal is as it was: a cursor, the first screen, and what is typed is seen."""
    assert pane.ask("display-message", "-p", "#{cursor_flag} #{alternate_on}").split() == ["1", "0"]
    pane.type("echo $((40 + 2)) typed")
    lines = pane.until("^42 typed")
    assert any("echo $((40 + 2)) typed" in line for line in lines)


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 50)])
def test_a_crawl_is_shown_while_it_runs_and_ends_with_its_summary(
    site: Site, opens: Opens, columns: int, rows: int
) -> None:
    hosts = site.take(4)
    tree = site.plant(120, hosts)
    pane = opens(columns, rows)
    pane.crawl(tree.url(0), "--scope", "any", "--delay", "0.12", "--workers", "2", "--name", "seen")
    pane.until(r"^pages +[1-9]\d* +[1-9].* pages/s now")
    # The second worker may come a moment later.
    lines = pane.until(r"^ +2 +\d+ +[\d,]+ ")
    is_whole(lines)
    assert any(re.match(r"seen  running  \d+ s", line) for line in lines)
    assert sum(bool(re.match(r" +[12] +\d+ +[\d,]+ ", line)) for line in lines) == 2
    # Room for messages stays.
    assert any(line.startswith("Starting crawl seen") for line in lines)
    pane.until("^ready>.*$|try  ")
    pane.until(r"stored +120 pages")
    whole = pane.screen(all_lines=True)
    assert "Crawl seen is finished." in whole
    # The frame went; nothing of it is left among the lines that stay.
    assert not any(" URLs found" in line or line.startswith("received") for line in whole)
    is_sane(pane)


@pytest.mark.smoke
def test_messages_survive_a_change_of_size_and_ctrl_c(site: Site, opens: Opens) -> None:
    tree = site.plant(3000, site.take(4))
    pane = opens(120, 40)
    pane.crawl(tree.url(0), "--scope", "any", "--delay", "0.2", "--workers", "2", "--name", "sized")
    is_whole(pane.until(r"^ +2 +\d+ +[1-9]"))
    command = children(pane.shell_pid())[0]
    victim = next(pid for pid in children(command) if is_worker(pid))
    os.kill(victim, signal.SIGKILL)
    pane.until("died .killed by SIGKILL")
    for size in ((70, 20), (150, 45), (90, 24), (90, 12)):
        pane.resize(*size)
        # The bar is as wide as the terminal, less one column.
        lines = pane.until(rf"^[━─]+  \d+% of [\d,]+ URLs found(?<=^.{{{size[0] - 1}}})$")
        if size[1] > 12:
            is_whole(lines)
        assert "died (killed by SIGKILL)" in "".join(pane.screen(all_lines=True)).replace("\n", "")
    pane.ask("send-keys", "C-c")
    pane.until(r"Resume with: shoal crawl --name sized")
    lines = pane.screen()
    assert not any(" URLs found" in line for line in lines)
    is_sane(pane)


class Terminal:
    """A pseudo terminal whose every byte is kept: nothing interprets them."""

    def __init__(self, shell: Shell, *args: object, **environ: str) -> None:
        ours, theirs = pty.openpty()
        paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        strange = {name for name in os.environ if name.startswith("SHOAL_") or name in ("CI", "NO_COLOR")}
        kept = {name: value for name, value in os.environ.items() if name not in strange}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shoal", *map(str, args)], cwd=shell.folder, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs,
            env={**kept, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environ},
        )  # fmt: skip
        os.close(theirs)
        self.bytes = b""
        self._ours = ours
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        # The end of a terminal is an error here.
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 65536):
                self.bytes += data

    def end(self) -> tuple[int, str, bytes]:
        out, _ = self.process.communicate(timeout=60)
        self._reading.join(10)
        os.close(self._ours)
        return self.process.returncode, self.bytes.decode(), out


@pytest.mark.parametrize(
    ("flags", "environ"), [((), {"TERM": "dumb"}), ((), {"CI": "true"}), (("--log", "text"), {})], ids=str
)
def test_a_terminal_that_cannot_show_it_gets_plain_lines(
    site: Site, shell: Shell, flags: tuple[str, ...], environ: dict[str, str]
) -> None:
    url = site.at(site.take()[0], "/", page("/a"))
    code, text, out = Terminal(shell, "crawl", url, *LOCAL, *flags, "--workers", "1", "--delay", "0", **environ).end()
    assert (code, out) == (0, b""), text
    assert "\x1b" not in text
    assert "stored      2 pages" in text or "stored      1 page" in text


def test_no_color_disables_colours_and_no_terminal_mode_is_changed(site: Site, shell: Shell) -> None:
    tree = site.plant(40, site.take(1))
    args = ("crawl", tree.url(0), *LOCAL, "--workers", "1", "--delay", "0.05")
    code, text, out = Terminal(shell, *args, NO_COLOR="1").end()
    assert (code, out) == (0, b""), text
    # Up, clear, and one frame at once: no colours, no other screen, no hidden cursor.
    assert set(re.findall(r"\x1b\[([?0-9;]*[A-Za-z])", text)) - {"K", "J", "?2026h", "?2026l"} <= {
        f"{rows}A" for rows in range(30)
    }
    assert "pages/s now" in text
    # The last frame is removed before the summary is printed.
    assert "URLs found" not in text[text.index("is finished.") :]


@pytest.mark.smoke
def test_output_to_a_pipe_is_plain_lines(site: Site, shell: Shell) -> None:
    url = site.at(site.take()[0], "/", page())
    result = shell.crawl(url, "--workers", "1")
    assert result.code == 0, result.err
    assert "\x1b" not in result.err
    assert result.out == ""


def objects(text: str) -> list[dict[str, Any]]:
    """Lines of a log, each of them one object."""
    events = [json.loads(line) for line in text.splitlines()]
    for event in events:
        assert {"time", "level", "event", "message"} <= set(event)
        assert event["level"] in ("info", "warning")
    return events


def test_a_json_log_reports_progress_and_remaining_time(site: Site, shell: Shell) -> None:
    """Ten seconds: progress is logged every five, and half of the crawl should be left then."""
    slow, *quick = site.take(4)
    site.at(slow, "/", page(*(f"/{n}" for n in range(39))))
    for number in range(39):
        site.at(slow, f"/{number}", page())
    trees = [site.plant(12, [host]) for host in quick]
    urls = [f"http://{slow}/", *(tree.url(0) for tree in trees)]
    result = shell.crawl(*urls, "--delay", "0.25", "--workers", "2", "--name", "timed", "--log", "json", *NAMED)
    assert result.code == 0, result.err
    events = objects(result.err)
    assert {event["crawl"] for event in events} == {"timed"}
    begun, progress, end = (
        next(o for o in events if o["event"] == f"crawl.{e}") for e in ("started", "progress", "ended")
    )
    assert events[0] == begun
    assert (end["state"], end["pages"], end["failed"]) == ("finished", 76, 0)
    assert progress["pages"] + progress["open"] == 76
    assert {"pages_per_second", "bytes", "hosts_open", "hosts_cooling", "limits", "workers"} <= set(progress)
    # By what ended a second so far, it would be half as long: only the slow host is left.
    ended, reported = datetime.fromisoformat(end["time"]), datetime.fromisoformat(progress["time"])
    left = (ended - reported).total_seconds()
    assert progress["left_seconds"] == pytest.approx(left, rel=0.3)


def test_workers_log_their_start_and_end(shell: Shell) -> None:
    shell.environ["SHOAL_LOG"] = "json"
    running = shell.start("worker", "--workers", "1", *LOCAL)
    running.wait_for_output("workers.started")
    wait_until(running.workers, "the worker process")
    os.kill(running.workers()[0], signal.SIGKILL)
    running.wait_for_output("worker.died")
    result = running.end(signal.SIGTERM)
    assert result.code == 0, result.err
    events = {event["event"]: event for event in objects(result.err)}
    assert events["worker.died"]["worker"].endswith("-1")
    assert "killed by SIGKILL" in events["worker.died"]["message"]
    assert events["workers.stopped"]["pages"] == 0


def test_workers_are_shown_on_a_terminal(shell: Shell, opens: Opens) -> None:
    pane = opens(80, 24)
    pane.type(f"{sys.executable} -m shoal worker --workers 2 --folder {shell.folder / '.shoal'} {' '.join(LOCAL)}")
    pane.until(r"^ +2 +\d+ +0 .* work$")
    lines = pane.screen()
    assert any(line.startswith("shoal worker  running") for line in lines)
    pane.ask("send-keys", "C-c")
    pane.until("Stored 0 pages")
    is_sane(pane)
