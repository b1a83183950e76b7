"""The three kinds of store with one contract, started once and shared; each test has its own namespace."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.frontier.shards import Shards
from shoal.store import Store
from tests.contract.fleet import SHARDS, Clock, Fleet
from tests.servers import Cluster, cluster, redis_server, server

KINDS = ("embedded", *(pytest.param(kind, marks=pytest.mark.variant) for kind in ("redis", "cluster")))
_namespaces = itertools.count()


@pytest.fixture(scope="session")
def embedded_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of an embedded store that another process keeps open."""
    folder = tmp_path_factory.mktemp("embedded")
    loop = asyncio.new_event_loop()
    holder = loop.run_until_complete(Store.open(folder=folder))
    yield folder
    loop.run_until_complete(holder.close())
    loop.close()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(tmp_path_factory.mktemp("redis"), binary=redis_server()) as redis:
        yield redis.url


@pytest.fixture(scope="session")
def valkey_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as three:
        yield three


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("redis-cluster"), binary=redis_server()) as three:
        yield three


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """The arguments of Store.open."""
    if kind == "embedded":
        return {"folder": request.getfixturevalue("embedded_folder")}
    if kind == "redis":
        return {"url": request.getfixturevalue("redis_url")}
    return {"url": request.getfixturevalue("valkey_cluster").url}


@pytest.fixture
async def store(kind: str, place: dict[str, Any], request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    async with await Store.open(**place) as opened:
        yield opened
        # Tests read their namespace with KEYS, which passes over every key of a server.
        if kind == "cluster":
            for node in request.getfixturevalue("valkey_cluster").nodes:
                node.ask("FLUSHALL")
        else:
            await opened.command("FLUSHALL")


@pytest.fixture
def namespace() -> str:
    return f"contract{next(_namespaces)}"


@pytest.fixture
async def fleet(kind: str, store: Store, namespace: str) -> AsyncIterator[Fleet]:
    clock = Clock()
    opened = Fleet(kind, store, await Shards.found(store, namespace, SHARDS, clock), clock)
    yield opened
    for frontier in opened.named.values():
        await frontier.close()
