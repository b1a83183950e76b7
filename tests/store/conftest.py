"""Servers shared by the tests of the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import Cluster, Server, cluster, server


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A standalone Valkey for tests that do it no harm; each test uses keys of its own."""
    with server(tmp_path_factory.mktemp("valkey")) as opened:
        yield opened


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    """A Valkey of the test's own, to kill and to freeze."""
    with server(tmp_path / "own") as opened:
        yield opened
