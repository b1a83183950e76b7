"""`make fuzz`: run every target for its share of SECONDS, guided by coverage if atheris is installed.

    python -m tests.fuzz [SECONDS [TARGET...]]

Without atheris (pip install atheris), inputs are mutated without guidance. Each target has a process of its own. An
input that breaks a target is kept in `.fuzz/`, and the exit code is 1.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(".fuzz")
# A process has this long after its time to finish its last input.
_GRACE_SECONDS = 120


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--one"]:
        _run_one(arguments[1], float(arguments[2]))
        return 0
    from tests.fuzz.targets import TARGETS

    seconds = float(arguments[0]) if arguments else 600.0
    names = arguments[1:] or list(TARGETS)
    share, broken = seconds / len(names), []
    for name in names:
        command = [sys.executable, "-m", "tests.fuzz", "--one", name, str(share)]
        print(f"{name}: {share:.0f} s", flush=True)
        if subprocess.run(command, timeout=share + _GRACE_SECONDS, check=False).returncode:
            broken.append(name)
    print(f"broken: {', '.join(broken)}; see {FOLDER}/" if broken else "no target broke")
    return bool(broken)


def _run_one(name: str, seconds: float) -> None:
    FOLDER.mkdir(exist_ok=True)
    if importlib.util.find_spec("atheris") is not None:
        _run_guided(name, seconds)
    else:
        _run_unguided(name, seconds)


def _run_guided(name: str, seconds: float) -> None:
    # Not in any lock file: it exists for some platforms only.
    atheris: Any = importlib.import_module("atheris")
    # Shoal must not have been imported before this.
    with atheris.instrument_imports(include=["shoal"]):
        from tests.fuzz.targets import SEEDS, run
    corpus = FOLDER / name
    corpus.mkdir(exist_ok=True)
    for number, seed in enumerate(SEEDS[name]):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [f"-max_total_time={int(seconds)}", "-timeout=20", "-max_len=65536", "-verbosity=0"]
    atheris.Setup(
        [sys.argv[0], *options, f"-artifact_prefix={FOLDER}/{name}-", str(corpus)], lambda data: run(name, data)
    )
    atheris.Fuzz()


def _run_unguided(name: str, seconds: float) -> None:
    from tests.fuzz.mutation import mutations
    from tests.fuzz.targets import SEEDS, run

    ends_mono, count = time.monotonic() + seconds, 0
    for data in mutations(SEEDS[name], seed=int(time.time())):
        if time.monotonic() > ends_mono:
            break
        try:
            run(name, data)
        except BaseException:
            (FOLDER / f"{name}-crash").write_bytes(data)
            raise
        count += 1
    print(f"  {count:,} inputs", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
