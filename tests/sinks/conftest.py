from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

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


@pytest.fixture(params=["postgresql", "mariadb"])
def database(request: pytest.FixtureRequest) -> Database:
    chosen: Database = request.getfixturevalue(f"{request.param}_server")
    return chosen


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A name that no other test uses."""
    return "t" + hashlib.sha256(str(tmp_path).encode()).hexdigest()[:16]
