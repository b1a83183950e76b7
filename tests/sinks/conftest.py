from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.sinks.databases import Database, mariadb, postgresql
from tests.sinks.outputs import FILES, OUTPUTS, Output


@pytest.fixture(params=OUTPUTS, ids=lambda output: output.name)
def output(request: pytest.FixtureRequest) -> Output:
    chosen: Output = request.param
    return replace(chosen, server=request.getfixturevalue(chosen.service)) if chosen.service else chosen


@pytest.fixture(params=FILES, ids=lambda output: output.name)
def file(request: pytest.FixtureRequest) -> Output:
    chosen: Output = request.param
    return chosen


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Database]:
    with postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Database]:
    with mariadb() as server:
        yield server
