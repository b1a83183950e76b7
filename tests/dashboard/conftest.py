"""A browser and a fleet for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dashboard.browser import Browser, chromium
from tests.dashboard.fleet import Fleet, fleet


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet")) as running:
        yield running
