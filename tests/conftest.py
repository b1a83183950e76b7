"""A site and brokers for the tests of a module, a shell for each test. Modules that need others define them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.brokers import Kafka, Rabbit, kafka, rabbitmq
from tests.servers import Server, server
from tests.site.site import Site, serving
from tests.system.shell import Shell

# An example may take any time: on a busy machine a limit fails tests at random. What CI chose otherwise stays.
settings.register_profile("shoal", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shoal")

# Thousands of tests stay in memory: collecting garbage among them takes a tenth of the time of all tests.
gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A module that takes minutes must not start last: the other processes would wait for it.
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    # Extension modules report objects that are left at the end.
    gc.unfreeze()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("site"), hosts=80) as site:
        yield site


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Server]:
    """A server for the frontier that loses no write after its reply."""
    with server(tmp_path / "store") as valkey:
        yield valkey


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a password, for streams of records and requests."""
    with server(tmp_path_factory.mktemp("valkey"), options={"requirepass": "hunter2"}) as opened:
        yield opened


@pytest.fixture(scope="module")
def brokers() -> Iterator[Kafka]:
    with kafka() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def rabbit() -> Iterator[Rabbit]:
    with rabbitmq() as broker:
        yield broker
