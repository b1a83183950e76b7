"""Run every task with every crawler and print a table: `python -m bench.tasks [--repeats N] [--write] [NUMBER...]`.

Each run has a new folder and its own hosts, on a web server of this machine. A result that is not complete fails the
run. The time is that of the whole commands, including the start of the interpreter, as the median of all runs. --write
puts the table into docs/reference/side-by-side.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path

from bench.machine import machine
from bench.server import Server
from bench.tasks.programs import TASKS, Program
from tests.site.responses import Response, Responses, page, robots
from tests.site.site import Site, serving

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference/side-by-side.md"
TOOLS = ("Shoal", "Scrapy", "Crawlee", "wget2")
PAGES, DOCS, ENTRIES, IMAGES, HOSTS = 60, 20, 30, 5, 5
_INTERRUPT_AFTER = 15
_BEGIN, _END = "<!-- measured -->", "<!-- end of what is measured -->"


def furnish(site: Site, host: str) -> None:
    """Create the pages of all tasks on one host."""
    # The current time: an older page would count as fresh, and not be requested again.
    now = formatdate(usegmt=True)
    numbers = [f"/{number}" for number in range(1, PAGES)]
    responses = {
        "/robots.txt": robots("User-agent: *\nDisallow: /closed\n"),
        "/": page(*numbers, title="Start"),
        "/docs/": page(*(f"{number}.html" for number in range(1, DOCS)), "/", title="Docs"),
        "/images": page(body="".join(f"<img src='/{number}.png'>" for number in range(IMAGES))),
    }
    for number, path in enumerate(numbers, 1):
        body = page("/", numbers[number % len(numbers)], title=f"Page {number}").body
        responses[path] = Response(body=body, etag=f'"{number}"', modified=now)
    responses |= {f"/docs/{number}.html": page("/", title=f"Doc {number}") for number in range(1, DOCS)}
    responses |= {f"/{number}.png": Response(body=f"\x89PNG {number}", type="image/png") for number in range(IMAGES)}
    for number in (1, 2, 3):
        rows = "".join(f"<li><b>n{entry}</b> <i>{entry}</i>" for entry in range(ENTRIES // 3))
        after = f"<a class=next href=list{number + 1}>more</a>" if number < 3 else ""
        responses[f"/list{number}"] = page(body=f"<ul>{rows}</ul>{after}")
        results = [{"id": entry} for entry in range(ENTRIES // 3)]
        results_page = {"results": results, "next": f"api{number + 1}" if number < 3 else None}
        responses[f"/api{number}"] = Response(body=json.dumps(results_page), type="application/json")
    for name in _names(host):
        site.send(*(Responses(name, path, (response,)) for path, response in responses.items()))


def _names(host: str) -> tuple[str, str]:
    """A host as its URL has it, and without its port: wget2 sends it so."""
    return host, host.partition(":")[0]


def rows(folder: Path) -> int:
    """Records of a file of JSON lines or a JSON list. A page counts once: Scrapy may visit its start URL twice."""
    lines, whole = folder / "out.jsonl", folder / "out.json"
    if lines.exists():
        records = [json.loads(line) for line in lines.read_text().splitlines()]
    else:
        records = json.loads(whole.read_text()) if whole.exists() else []
    urls = {record["url"] for record in records if "title" in record}
    return len(urls) or len(records)


def files(folder: Path, suffix: str = "") -> int:
    return sum(path.is_file() and path.name.endswith(suffix) for path in (folder / "out").rglob("*"))


def mirrored(folder: Path) -> int:
    return sum(path.is_file() for path in folder.glob("127.*/**/*") if path.name != "robots.txt")


# The result of each task, in the order of TASKS.
CHECKS: tuple[Callable[[Path], bool], ...] = (
    lambda folder: rows(folder) == PAGES,
    lambda folder: files(folder) >= DOCS,
    lambda folder: rows(folder) == ENTRIES,
    lambda folder: rows(folder) == ENTRIES,
    lambda folder: files(folder, ".png") >= IMAGES or files(folder) >= IMAGES,
    lambda folder: rows(folder) == PAGES,
    lambda folder: mirrored(folder) == PAGES or rows(folder) >= PAGES,
    lambda folder: mirrored(folder) == HOSTS * PAGES or rows(folder) == HOSTS * PAGES,
)


def run(number: int, program: Program, site: Site) -> float:
    """Run a program once and return its seconds."""
    hosts = site.take(HOSTS if number == len(TASKS) - 1 else 1)
    for host in hosts:
        furnish(site, host)
    names = [name for host in hosts for name in _names(host)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "task.py").write_text(program.code)
        environ = {
            **os.environ, "URL": f"http://{hosts[0]}/", "URLS": " ".join(f"http://{host}/" for host in hosts),
            "PYTHON": sys.executable, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SHOAL_FETCH_ALLOW_NETWORKS": "127.0.0.0/8", "PYTHONPATH": str(ROOT / "src"),
        }  # fmt: skip
        started = time.monotonic()
        if number == 5:
            first = _start(program, folder, environ)
            while len(site.requests(*names)) < _INTERRUPT_AFTER and first.poll() is None:
                time.sleep(0.05)
            os.killpg(first.pid, signal.SIGINT)
            first.wait(120)
        last = _start(program, folder, environ)
        code = last.wait(100)
        seconds = time.monotonic() - started
        log = (folder / "said").read_text()[-2000:]
        if not CHECKS[number](folder):
            requested = Counter(f"{request.status} {request.path}" for request in site.requests(*names)).most_common(5)
            files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())[:10]
            raise RuntimeError(f"the result is not complete (exit code {code}): {log} {requested} {files}")
        if number == 6 and not any(request.status == 304 for request in site.requests(*names)):
            raise RuntimeError(f"nothing was answered by 304: {log}")
    return seconds


def _start(program: Program, folder: Path, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    with (folder / "said").open("ab") as log:
        return subprocess.Popen(
            ["bash", "-c", program.commands], cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, start_new_session=True,
        )  # fmt: skip


def table(results: dict[tuple[int, str], str]) -> str:
    lines = [f"| task | {' | '.join(TOOLS)} |", f"| --- |{' --- |' * len(TOOLS)}"]
    for number, task in enumerate(TASKS):
        if any(key[0] == number for key in results):
            lines.append(f"| {task} | {' | '.join(results[number, tool] for tool in TOOLS)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.tasks", description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int, help="numbers of tasks, from 1; all by default")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"write the table to {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    results: dict[tuple[int, str], str] = {}
    failed = False
    chosen = [number - 1 for number in options.numbers] or range(len(TASKS))
    # Before the runs, because it includes the load of the machine.
    with Server(durable=False) as server:
        where = ", ".join(f"{key} {value}" for key, value in machine(server.version()).items())
    with tempfile.TemporaryDirectory() as name, serving(Path(name), hosts=240) as site:
        for number in chosen:
            for tool, program in list(TASKS.values())[number].items():
                if program.cannot:
                    results[number, tool] = f"no: {program.cannot}"
                    continue
                try:
                    times = [run(number, program, site) for _ in range(options.repeats)]
                    lines = "1 line" if program.lines == 1 else f"{program.lines} lines"
                    seconds = statistics.median(times)
                    text = f"{lines}, {seconds:.1f} s" if seconds >= 0.1 else f"{lines}, under 0.1 s"
                except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as error:
                    text, failed = "failed", True
                    print(f"{number + 1} {tool}: {error}", file=sys.stderr)
                results[number, tool] = text
                print(f"{number + 1} {tool}: {text}", flush=True)
    print(f"\n{where}\n\n{table(results)}")
    if options.write and not failed:
        before, _, rest = PAGE.read_text().partition(_BEGIN)
        after = rest.partition(_END)[2]
        PAGE.write_text(
            f"{before}{_BEGIN}\n{table(results)}\n\nMedian of {options.repeats}. Measured on: {where}.\n{_END}{after}"
        )
    sys.exit(failed)


if __name__ == "__main__":
    main()
