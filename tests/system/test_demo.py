"""`make demo` as a program: what it prints, what it leaves behind, and what happens on Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import wait_until

ROOT = Path(__file__).resolve().parents[2]


# The same demo with a crawl that was given no delay: the web servers' log must give it away.
HASTY = """
import sys
sys.path.insert(0, "examples")
import demo
from shoal import Limits
demo.Limits = lambda delay_seconds: Limits(delay_seconds=0.0)
sys.exit(demo.main())
"""


def start(folder: Path, *program: str) -> subprocess.Popen[str]:
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "TMPDIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, *(program or ["examples/demo.py"])], cwd=ROOT, env=environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def processes_in(folder: Path) -> list[str]:
    """Command lines of processes that were started for the folder, or work in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if str(folder) in command or str(folder) in str((process / "cwd").readlink()):
                found.append(command)
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_the_demo_reports_what_held(tmp_path: Path) -> None:
    process = start(tmp_path)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, out + err
    assert err == ""
    assert max(len(line) for line in out.splitlines()) <= 80, out
    assert "60 pages exist, 60 are stored, each once." in out
    assert re.search(r"worker-1 is killed while it asks for 127\.0\.0\.1:\d+/\d+", out)
    assert re.search(r"worker-[23] goes on with", out)
    gaps = [float(gap) for gap in re.findall(r"^127\.0\.0\.1:\d+ .* (\d+\.\d+) s +0\.100 s$", out, re.M)]
    assert len(gaps) == 4
    assert min(gaps) >= 0.1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_demo_in_which_a_host_is_asked_too_soon_says_so(tmp_path: Path) -> None:
    process = start(tmp_path, "-c", HASTY)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 1, out + err
    assert re.fullmatch(r"demo: 127\.0\.0\.1:\d+ was asked \S+ s after .*\n", err), err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, how: signal.Signals) -> None:
    process = start(tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "start" in line:
            break
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert err == "demo: interrupted; everything it started is ended and removed.\n"
    assert list(tmp_path.iterdir()) == []
    if Path("/proc/self/cmdline").exists():
        wait_until(lambda: not processes_in(tmp_path), f"{processes_in(tmp_path)} end")
