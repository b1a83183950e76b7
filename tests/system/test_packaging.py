"""The packages of `python -m build` are complete, and run without this repository."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import shoal
from tests.site.responses import page
from tests.site.site import Site
from tests.system.shell import LOCAL, ROOT

pytestmark = pytest.mark.full

# Folders of the source distribution: with it alone, `make check` and `make test` run.
FOLDERS = ("src", "tests", "docs", "bench", "examples", "requirements")
KINDS = {".css", ".js", ".svg", ".py", ".lua", ".md", ".txt", ".in", ".toml", ".typed", ".cfg"}


def run(*argv: object, folder: Path) -> str:
    """The output of a program that knows nothing of this repository."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SHOAL_"))}
    result = subprocess.run(
        [*map(str, argv)], cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def files(*folders: str) -> set[str]:
    """The files of the repository that belong to a distribution."""
    return {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and (path.suffix in KINDS or path.name == "py.typed")
    }


@dataclass
class Built:
    wheel: Path
    source: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A source distribution, and the wheel that is made from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, folder=folder)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, source)


def test_wheel_and_source_distribution_have_the_same_version(built: Built) -> None:
    assert built.wheel.name == f"shoal-{shoal.__version__}-py3-none-any.whl"
    assert built.source.name == f"shoal-{shoal.__version__}.tar.gz"


def test_the_wheel_has_every_file_of_the_package(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        there = {name for name in archive.namelist() if name.startswith("shoal/")}
    expected = {name.removeprefix("src/") for name in files("src/shoal")}
    assert there == expected
    assert "shoal/py.typed" in there
    assert "shoal/frontier/lua/lease.lua" in there


def test_the_source_distribution_has_every_file_of_the_repository(built: Built) -> None:
    with tarfile.open(built.source) as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}
    expected = files(*FOLDERS) | {
        "pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE",
        "tests/services", "tests/documents", ".ci/run",
    }  # fmt: skip
    assert not expected - there


def test_an_installed_wheel_crawls_outside_the_repository(built: Built, site: Site, tmp_path: Path) -> None:
    environment, elsewhere = tmp_path / "environment", tmp_path / "elsewhere"
    elsewhere.mkdir()
    venv.create(environment, with_pip=False)
    python = environment / "bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", built.wheel,
        folder=elsewhere)  # fmt: skip
    # Its dependencies are those of this environment. A path in a .pth file brings no editable install with it.
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(sysconfig.get_path(kind) for kind in ("purelib", "platlib")))
    assert Path(run(python, "-c", "print(__import__('shoal').__file__)", folder=elsewhere)).is_relative_to(packages)
    command = environment / "bin/shoal"
    assert run(command, "--version", folder=elsewhere) == f"shoal {shoal.__version__}\n"
    (host,) = site.take()
    site.at(host, "/", page("/a", "/b"))
    for path in ("/a", "/b"):
        site.at(host, path, page())
    output = run(command, "crawl", f"http://{host}/", "--delay", "0", "--out", "pages.jsonl", *LOCAL, folder=elsewhere)
    assert "stored      3 pages" in output
    assert len((elsewhere / "pages.jsonl").read_text().splitlines()) == 3
    assert site.requests(host)[0].headers["user-agent"].startswith("Shoal/" + shoal.__version__.rpartition(".")[0])
