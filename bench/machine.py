"""Where and when figures were measured."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path


def machine(server: str) -> dict[str, str]:
    packages = ("shoal", "hiredis", "uvloop", "pycurl", "selectolax", "scrapy", "scrapy-redis", "redis", "crawlee")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores of {_cpu()}, {_memory_gib()} GiB of memory",
        "system": f"{platform.system()} {platform.release()}, load {os.getloadavg()[0]:.1f} at the start",
        "versions": ", ".join([f"Python {platform.python_version()}", server, *(_version(name) for name in packages)]),
    }


def _version(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except ImportError:
        return f"{name} from its sources"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
