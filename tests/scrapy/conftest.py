"""Which Scrapy the processes of a test run on: the one that is installed, and the oldest that is supported."""

from __future__ import annotations

import pytest

from tests.scrapy.packages import installed

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
