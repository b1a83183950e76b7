"""Run the scripts that break stores under a running crawl, several times each, and print a table. `make faults`.

    python tools/faults.py FOLDER [TIMES] [NAME...] [--results FILE] [--jobs N]

FOLDER contains the scripts and `run.py`, which runs one of them in its own network namespace (root, Linux). A NAME
selects the faults whose name contains it; `=NAME` selects the fault with exactly that name. With --results, each run is
a line of FILE, runs of this commit that FILE already has are not repeated, and the table covers all of them. With
--jobs, N runs are made at the same time: each has its own servers and network, but all share the CPU. The files of a
run that was not clean are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Fault:
    seconds: int  # the time after which the script is interrupted
    script: str  # the script with its arguments
    limits: dict[str, str] = field(default_factory=dict, hash=False)  # environment variables for run.py
    variant: str = ""  # how tools/fault_variant.py changes the script

    @property
    def name(self) -> str:
        return f"{self.script} {self.variant}".strip()


FAULTS: tuple[Fault, ...] = (
    Fault(200, "rollback.py 3 save"),
    Fault(200, "rollback.py 3 slow"),
    Fault(240, "sentinel_failover.py kill 5"),
    Fault(240, "sentinel_failover.py stop 5"),
    Fault(240, "sentinel_failover.py manual 5"),
    Fault(280, "cluster_failover.py"),
    Fault(280, "cluster_failover.py FORCE"),
    Fault(280, "cluster_failover.py TAKEOVER"),
    Fault(240, "partition.py 20 5", {"MOST_STALL": "20"}),
    Fault(240, "reshard.py atomic"),
    Fault(240, "reshard.py classic"),
    Fault(240, "reshard.py add"),
    Fault(260, "store_clock.py +300s always"),
    Fault(260, "store_clock.py -300s always"),
    Fault(260, "store_clock.py +3600s everysec"),
    Fault(260, "failover_clock.py +30s 3"),
    Fault(260, "failover_clock.py -3s 3"),
    Fault(200, "store_replaced.py flushall", {"MOST_REPEATS": "300"}),
    Fault(200, "killed_and_rerun.py"),
    Fault(260, "open_files.py 1024 1200 200"),
    # Other servers, numbers of replicas and links. Debian's Redis does not start under faketime, so clocks are set on
    # Valkey only.
    Fault(200, "rollback.py 3 save", variant="server=valkey"),
    Fault(240, "sentinel_failover.py manual 5", variant="server=redis"),
    Fault(240, "sentinel_failover.py kill 5", variant="replicas=3"),
    Fault(280, "cluster_failover.py FORCE", variant="server=redis"),
    Fault(280, "cluster_failover.py FORCE", variant="replicas=3"),
    Fault(280, "cluster_failover.py TAKEOVER", variant="replicas=1"),
    Fault(240, "partition.py 20 5", {"MOST_STALL": "20"}, variant="links=cross"),
    Fault(240, "partition.py 20 5", {"MOST_STALL": "20"}, variant="server=redis"),
    Fault(240, "reshard.py classic", variant="server=redis"),
    Fault(240, "reshard.py classic", variant="links=cross"),
    Fault(240, "reshard.py atomic", variant="links=cross,replicas=2"),
    Fault(260, "store_clock.py +31536000s always"),
    Fault(260, "failover_clock.py -86400s 3"),
    Fault(200, "store_replaced.py flushall", {"MOST_REPEATS": "300"}, variant="links=cross"),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One line of the results."""

    commit: str
    fault: str
    clean: bool
    repeats: int
    stall_seconds: float  # the longest time without any request
    seconds: float
    judgement: str  # the last line of run.py's output
    folder: str  # the files of a run that was not clean, else ''


def run_fault(folder: Path, fault: Fault, commit: str) -> Run:
    script = fault.script.split()
    if fault.variant:
        script = [str(ROOT / "tools" / "fault_variant.py"), fault.variant, str(folder), *script]
    files = tempfile.mkdtemp(prefix="fault-")
    environment = {**os.environ, **fault.limits, "TMPDIR": files, "VERBOSE": "1"}
    started = time.monotonic()
    command = [str(folder / "run.py"), str(fault.seconds), *script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    took = time.monotonic() - started
    clean = done.returncode == 0
    if clean:
        shutil.rmtree(files, ignore_errors=True)
    else:
        Path(files, "output.txt").write_text(done.stdout + done.stderr)
    lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
    return Run(
        commit=commit,
        fault=fault.name,
        clean=clean,
        repeats=max([0, *map(int, re.findall(r"repeats (\d+)", lines[-1]))]),
        stall_seconds=max([0.0, *map(float, re.findall(r"\[[\d.]+, ([\d.]+)\]", lines[-1]))]),
        seconds=round(took, 1),
        judgement=lines[-1],
        folder="" if clean else files,
    )


def print_row(name: str, runs: list[Run]) -> None:
    clean = sum(run.clean for run in runs)
    repeats = max(run.repeats for run in runs)
    stall = max(run.stall_seconds for run in runs)
    took = sum(run.seconds for run in runs) / len(runs)
    print(
        f"{name:<52} {f'{clean} of {len(runs)}':>8} {repeats:>8} {f'{stall:.1f} s':>14} {took:>8.0f}",
        flush=True,
    )


def read_results(path: Path | None, commit: str) -> Iterable[Run]:
    if path is not None and path.exists():
        for line in path.read_text().splitlines():
            run = Run(**json.loads(line))
            if run.commit == commit:
                yield run


def selected(fault: Fault, names: Sequence[str]) -> bool:
    return not names or any(name[1:] == fault.name if name[:1] == "=" else name in fault.name for name in names)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the fault scripts and print a table.")
    parser.add_argument("folder", type=Path, help="holds the scripts and run.py")
    parser.add_argument("times", type=int, nargs="?", default=1, help="runs of each fault")
    parser.add_argument("names", nargs="*", help="only faults whose name contains one of these, or is it (=NAME)")
    parser.add_argument("--results", type=Path, help="file of runs, to continue later")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    options = parser.parse_intermixed_args()
    if not (options.folder / "run.py").exists():
        parser.error(f"{options.folder} has no run.py; name the folder of the fault scripts")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],  # noqa: S607 - wherever the developer has it
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    ).stdout.strip()
    faults = [fault for fault in FAULTS if selected(fault, options.names)]
    known = list(read_results(options.results, commit))

    def run_and_note(fault: Fault) -> Run:
        run = run_fault(options.folder, fault, commit)
        if not run.clean:
            print(f"{run.judgement}\n  files: {run.folder}", file=sys.stderr, flush=True)
        if options.results is not None:
            with options.results.open("a") as results:
                results.write(json.dumps(asdict(run)) + "\n")
        return run

    print(f"{'fault':<52} {'clean':>8} {'repeats':>8} {'longest stall':>14} {'seconds':>8}", flush=True)
    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        earlier = {fault: [run for run in known if run.fault == fault.name] for fault in faults}
        started = {
            fault: [pool.submit(run_and_note, fault) for _ in range(options.times - len(earlier[fault]))]
            for fault in faults
        }
        for fault in faults:
            runs = earlier[fault] + [run.result() for run in started[fault]]
            failed += sum(not run.clean for run in runs)
            print_row(fault.name, runs)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
