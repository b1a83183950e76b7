"""Packages that tests need beside the installed ones: other releases of Scrapy, and sources with their tests.

They are fetched with pip the first time and kept in the user's cache. A test skips where they cannot be fetched, and
fails where CI=true.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

_SECONDS = 180


def installed(*requirements: str) -> Path:
    """A folder with these packages and nothing else, for PYTHONPATH."""
    name = "-".join([*requirements, f"py{sys.version_info.major}{sys.version_info.minor}"])
    return _cached(name, ["install", "--no-deps", *requirements], lambda folder: ["--target", str(folder)])


def environment(version: str, requirement: str) -> str:
    """The python of a virtual environment with a package, on another Python of this machine."""
    python = _python(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed; run: pyenv install {version}")
    folder = _cache() / f"environment-py{version}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        pip = str(folder / "bin" / "pip")
        _run([python, "-m", "venv", str(folder)], f"python{version} -m venv")
        _run([pip, "install", "--quiet", requirement], f"pip install {requirement}")
        # Only what it needs: the package itself comes from the sources.
        _run([pip, "uninstall", "--quiet", "--yes", "shoal"], "pip uninstall shoal")
        (folder / "complete").touch()
    return str(folder / "bin" / "python")


def _python(version: str) -> str | None:
    path = shutil.which(f"python{version}")
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    installed_ones = sorted(versions.glob(f"{version}.*/bin/python"))
    return str(installed_ones[-1]) if installed_ones else path


def source_of(requirement: str) -> Path:
    """The unpacked source distribution of a package."""
    argv = ["download", "--no-binary", ":all:", "--no-deps", requirement]
    folder = _cached(f"{requirement}-source", argv, lambda folder: ["--dest", str(folder)])
    (archive,) = folder.glob("*.tar.gz")
    unpacked = folder / archive.name.removesuffix(".tar.gz")
    if not unpacked.exists():
        fresh = Path(tempfile.mkdtemp(dir=folder))
        with tarfile.open(archive) as tar:
            tar.extractall(fresh, filter="data")
        _move(fresh / unpacked.name, unpacked)
    return unpacked


def _cached(name: str, argv: list[str], into: Callable[[Path], list[str]]) -> Path:
    cache = _cache()
    folder = cache / name.replace("/", "-")
    if folder.exists():
        return folder
    fresh = Path(tempfile.mkdtemp(prefix="new-", dir=cache))
    _run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *argv, *into(fresh)],
        f"pip {' '.join(argv)}",
    )
    _move(fresh, folder)
    return folder


def _cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shoal-scrapy"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _run(command: list[str], shown: str) -> None:
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        trouble = run.stderr.strip()[-300:] if run.returncode else ""
    except subprocess.TimeoutExpired:
        trouble = f"nothing came within {_SECONDS} s"
    if trouble:
        reason = f"a package cannot be fetched; run: {shown} ({trouble})"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


def _move(fresh: Path, folder: Path) -> None:
    """The move comes last: a folder of this name is whole. Another run may have been quicker."""
    try:
        fresh.rename(folder)
    except OSError:
        assert folder.exists()
