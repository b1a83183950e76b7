"""A Scrapy project for each test, and which Scrapy it runs on: the installed one, and the oldest that is supported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scrapy.packages import installed
from tests.scrapy.processes import Project, project

# As pyproject.toml has it, with the newest Twisted that Scrapy 2.13 allows.
OLDEST = ("scrapy==2.13.0", "twisted==25.5.0")


@pytest.fixture(scope="session")
def oldest() -> str:
    """A folder with the oldest Scrapy."""
    return str(installed(*OLDEST))


@pytest.fixture(params=["newest", pytest.param("oldest", marks=pytest.mark.variant)])
def scrapy(request: pytest.FixtureRequest) -> str:
    """For `project`: tests with this fixture run on both."""
    return "" if request.param == "newest" else str(request.getfixturevalue("oldest"))


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Project]:
    """A project with the settings of the tests. A file that needs others has its own."""
    with project(tmp_path / "project") as directory:
        yield directory
