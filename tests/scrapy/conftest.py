"""Which Scrapy the processes of a test run on: the one that is installed, and the oldest that is supported."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

# As pyproject.toml has it, with the newest Twisted that Scrapy 2.13 allows.
OLDEST = ("scrapy==2.13.0", "twisted==25.5.0")
_INSTALL_SECONDS = 120


@pytest.fixture(scope="session")
def oldest() -> str:
    """A folder with the oldest Scrapy, installed into the user's cache the first time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shoal-scrapy"
    folder = cache / "-".join([*OLDEST, f"py{sys.version_info.major}{sys.version_info.minor}"])
    if folder.exists():
        return str(folder)
    cache.mkdir(parents=True, exist_ok=True)
    fresh = tempfile.mkdtemp(prefix="new-", dir=cache)
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", fresh, *OLDEST]
    try:
        made = subprocess.run(argv, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
        trouble = made.stderr.strip()[-300:] if made.returncode else ""
    except subprocess.TimeoutExpired:
        trouble = f"nothing came within {_INSTALL_SECONDS} s"
    if trouble:
        reason = f"the oldest Scrapy cannot be had; run: {' '.join(argv[1:4])} {' '.join(OLDEST)} ({trouble})"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    # The move comes last: a folder of this name is whole. Another run may have been quicker.
    try:
        Path(fresh).rename(folder)
    except OSError:
        assert folder.exists()
    return str(folder)


@pytest.fixture(params=["newest", pytest.param("oldest", marks=pytest.mark.variant)])
def scrapy(request: pytest.FixtureRequest) -> str:
    """For `project`: tests with this fixture run on both."""
    return "" if request.param == "newest" else str(request.getfixturevalue("oldest"))
