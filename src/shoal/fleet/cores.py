"""How many worker processes can run at once on this machine, or in this container."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

_CONTROL_GROUP = Path("/sys/fs/cgroup")
_UNLIMITED = 1_000_000


def usable_cores(control_group: Path = _CONTROL_GROUP) -> int:
    """The cores that this process may use: by its affinity, and by the CPU limit of its container, rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _limit(control_group)))


def _limit(control_group: Path) -> int:
    """The CPU limit of a container, in cores; very many without one."""
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        # Version 2: "150000 100000", or "max 100000".
        quota, period = (control_group / "cpu.max").read_text().split()
        return _UNLIMITED if quota == "max" else math.ceil(int(quota) / int(period))
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota_us = int((control_group / "cpu/cpu.cfs_quota_us").read_text())
        if quota_us > 0:
            return math.ceil(quota_us / int((control_group / "cpu/cpu.cfs_period_us").read_text()))
    return _UNLIMITED
