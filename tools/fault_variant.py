"""Run one fault script with another server, other numbers of replicas or other links. Used by tools/faults.py.

    python tools/fault_variant.py VARIANT FOLDER SCRIPT [ARGS...]

VARIANT is a list such as `server=redis,replicas=3,links=cross`. The scripts import everything from `harness`, so its
names are replaced before the script runs; the scripts themselves stay as they are.
"""

from __future__ import annotations

import inspect
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any


def set_default(function: Any, name: str, value: object) -> None:
    """Set a parameter to this value, whatever callers pass for it."""
    parameters = inspect.signature(function.__init__).parameters
    if name not in parameters:
        raise SystemExit(f"{function.__name__} has no parameter {name}")
    original = function.__init__

    def initialize(self: Any, *arguments: Any, **named: Any) -> None:
        named[name] = value
        original(self, *arguments, **named)

    function.__init__ = initialize


def apply(variant: str, folder: Path) -> None:
    sys.path.insert(0, str(folder))
    import harness  # type: ignore[import-not-found]

    for setting in variant.split(","):
        name, _, value = setting.partition("=")
        if name == "server":
            set_default(harness.Server, "binary", shutil.which("redis-server") if value == "redis" else harness.VALKEY)
        elif name == "replicas":
            set_default(harness.Cluster, "replicas", int(value))
            set_default(harness.Sentinels, "replicas", int(value))
        elif (name, value) == ("links", "cross"):
            harness.Site = cross_linked(harness.XSite)
        else:
            raise SystemExit(f"unknown variant {setting!r}; use server=redis|valkey, replicas=N or links=cross")


def cross_linked(site: Any) -> Any:
    class CrossLinked(site):  # type: ignore[misc]
        """As many pages as the script requests, each linked from only one page, on another host."""

        def __init__(self, log_folder: Path, *, hosts: int, pages: int, **options: Any) -> None:
            super().__init__(log_folder, hosts=hosts, total=hosts * pages, fan=3, **options)

    return CrossLinked


def main() -> None:
    variant, folder, script, *arguments = sys.argv[1:]
    apply(variant, Path(folder))
    sys.argv = [script, *arguments]
    runpy.run_path(str(Path(folder) / script), run_name="__main__")


if __name__ == "__main__":
    main()
