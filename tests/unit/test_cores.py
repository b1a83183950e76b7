"""The number of worker processes by default: cores, or the CPU limit of a container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.fleet.cores import usable_cores

HERE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, HERE),
        ({"cpu.max": "max 100000\n"}, HERE),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "150000 100000\n"}, min(HERE, 2)),
        ({"cpu.max": "99900000 100000\n"}, HERE),
        ({"cpu.max": "garbage\n"}, HERE),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, HERE),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "0\n"}, HERE),
    ],
)
def test_a_container_with_a_cpu_limit_has_as_many_cores_as_its_limit(
    tmp_path: Path, files: dict[str, str], cores: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == cores
