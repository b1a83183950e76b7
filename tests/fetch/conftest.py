"""A fetcher that may send requests to loopback, on the event loop that the worker uses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from shoal.fetch import Fetcher
from shoal.settings import FetchSettings


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def fetcher() -> AsyncIterator[Fetcher]:
    opened = Fetcher(FetchSettings(allow_networks="127.0.0.0/8,::1"))
    yield opened
    await opened.close()
