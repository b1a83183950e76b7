"""Run the scripts that break stores under a running crawl, several times each, and print a table. `make faults`.

    python tools/faults.py FOLDER [TIMES] [NAME]

FOLDER holds the scripts and `run.py`, which runs one of them in a network namespace of its own (root, Linux). NAME
selects the scripts whose line contains it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Seconds at most, the script with its arguments, and limits for run.py.
FAULTS: tuple[tuple[int, str, dict[str, str]], ...] = (
    (200, "rollback.py 3 save", {}),
    (200, "rollback.py 3 slow", {}),
    (240, "sentinel_failover.py kill 5", {}),
    (240, "sentinel_failover.py stop 5", {}),
    (240, "sentinel_failover.py manual 5", {}),
    (280, "cluster_failover.py", {}),
    (280, "cluster_failover.py FORCE", {}),
    (280, "cluster_failover.py TAKEOVER", {}),
    (240, "partition.py 20 5", {"MOST_STALL": "20"}),
    (240, "reshard.py atomic", {}),
    (240, "reshard.py classic", {}),
    (240, "reshard.py add", {}),
    (260, "store_clock.py +300s always", {}),
    (260, "store_clock.py -300s always", {}),
    (260, "store_clock.py +3600s everysec", {}),
    (260, "failover_clock.py +30s 3", {}),
    (260, "failover_clock.py -3s 3", {}),
    (200, "store_replaced.py flushall", {"MOST_REPEATS": "300"}),
    (200, "killed_and_rerun.py", {}),
    (260, "open_files.py 1024 1200 200", {}),
)


def main() -> int:
    if len(sys.argv) < 2 or not (folder := Path(sys.argv[1])).is_dir():
        print("usage: python tools/faults.py FOLDER [TIMES] [NAME]; FOLDER holds the scripts", file=sys.stderr)
        return 2
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    chosen = [fault for fault in FAULTS if len(sys.argv) < 4 or sys.argv[3] in fault[1]]
    print(f"{'fault':<34} {'clean':>8} {'repeats':>8} {'longest stall':>14} {'seconds':>8}", flush=True)
    failed = 0
    for seconds, line, limits in chosen:
        clean, repeats, stall, started = 0, 0, 0.0, time.monotonic()
        for _ in range(times):
            command = [str(folder / "run.py"), str(seconds), *line.split()]
            run = subprocess.run(
                command, capture_output=True, text=True, env={**os.environ, **limits}, cwd=ROOT, check=False
            )
            clean += run.returncode == 0
            if run.returncode:
                print(run.stdout.strip() or run.stderr.strip(), file=sys.stderr)
            repeats = max([repeats, *map(int, re.findall(r"repeats (\d+)", run.stdout))])
            stall = max([stall, *map(float, re.findall(r"\[[\d.]+, ([\d.]+)\]", run.stdout))])
        failed += times - clean
        took = (time.monotonic() - started) / times
        print(f"{line:<34} {f'{clean} of {times}':>8} {repeats:>8} {f'{stall:.1f} s':>14} {took:>8.0f}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
