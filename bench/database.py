"""The CPU time that a database server used, including that of processes that have ended."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a server and of its children. PostgreSQL has a process for each connection."""
    while True:
        own, ended = _ticks(pid)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        running = sum(_ticks(int(child))[0] for child in children)
        # A child that ended meanwhile would be in neither sum.
        if _ticks(pid)[1] == ended:
            return (own + ended + running) / _TICKS


def _ticks(pid: int) -> tuple[int, int]:
    """CPU ticks of the process, and of the children that it waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, 0  # it ended just now
    user, system, children_user, children_system = map(int, fields[11:15])
    return user + system, children_user + children_system
