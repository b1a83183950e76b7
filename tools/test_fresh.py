"""Run the fast tests as on a new machine, several times, and print a table. `make test-fresh`.

    python tools/test_fresh.py [--loops N] [--target TARGET] LENGTH[:PYTHON]...

Each run clones the last commit into a new folder, has an empty home directory, and runs the tests in random order with
a base directory whose path has LENGTH characters. N busy loops (2) run beside it. PYTHON is the interpreter of the run,
e.g. `60:python3.12`. The files of a run that failed are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
# The number of lines of pytest's output that are printed; its last line counts the tests.
_TAIL_LINES = 40


def git(*words: str) -> str:
    command = ("git", *words)
    return subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    loops = [subprocess.Popen((sys.executable, "-c", "while True: pass")) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def clone(folder: Path) -> Path:
    """Clone the last commit. A link makes the public test data beside the checkout available beside the clone, too."""
    target = folder / "shoal"
    git("clone", "--quiet", str(CHECKOUT), str(target))
    data = CHECKOUT.parent / "shared"
    if data.exists():
        (folder / "shared").symlink_to(data)
    return target


def run(length: int, python: str, target: str, loops: int) -> tuple[bool, str]:
    """Make one run. Returns whether it succeeded, and the row of the table."""
    folder = Path(tempfile.mkdtemp(prefix="shoal-fresh-", dir="/var/tmp"))
    root = tempfile.gettempdir()
    base = Path(root, secrets.token_hex(length)[: length - len(root) - 1])
    (home := folder / "home").mkdir()
    checkout = clone(folder)
    environment = {**os.environ, "HOME": str(home)}
    log = folder / "log"

    def make(*arguments: str) -> bool:
        with log.open("ab") as output:
            command = ("make", "--no-print-directory", *arguments, f"PYTHON={python}")
            return not subprocess.run(command, cwd=checkout, env=environment, stdout=output, stderr=output).returncode

    with busy_loops(loops):
        succeeded = make("install")
        pip = (checkout / ".venv/bin/python", "-m", "pip", "install", "--quiet", "pytest-randomly")
        succeeded = succeeded and not subprocess.run(pip, env=environment).returncode
        started = time.monotonic()
        succeeded = succeeded and make(target, f"ARGS=--basetemp={base} -p randomly")
        seconds = round(time.monotonic() - started)
    lines = log.read_text(errors="replace").splitlines()
    version = subprocess.run((python, "--version"), capture_output=True, text=True).stdout.strip()
    row = f"| {length} | {version} | {seconds // 60}:{seconds % 60:02} | {lines[-1] if lines else 'no output'} |"
    if succeeded:
        shutil.rmtree(folder)
        shutil.rmtree(base, ignore_errors=True)
    else:
        print("\n".join(lines[-_TAIL_LINES:]), f"\nkept: {folder} {base}", file=sys.stderr)
    return succeeded, row


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests as on a new machine.")
    parser.add_argument("runs", nargs="+", metavar="LENGTH[:PYTHON]")
    parser.add_argument("--loops", type=int, default=2, help="busy loops beside each run")
    parser.add_argument("--target", default="test", help="the target of make: test or test-all")
    arguments = parser.parse_args()
    print(f"commit {git('rev-parse', '--short', 'HEAD')}\n")
    print("| characters | Python | time | result |\n| --- | --- | --- | --- |", flush=True)
    failed = 0
    for entry in arguments.runs:
        length, _, python = entry.partition(":")
        succeeded, row = run(int(length), python or "python3", arguments.target, arguments.loops)
        failed += not succeeded
        print(row, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
