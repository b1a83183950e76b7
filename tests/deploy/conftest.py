"""A web site that only a separate machine reaches; `box` is the machine of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deploy.machine import Machine
from tests.site.site import Site, serving


@pytest.fixture(scope="module")
def web(box: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    addresses = [f"198.18.0.{number}" for number in range(1, 9)]
    with serving(tmp_path_factory.mktemp("web"), addresses=addresses, network=box.network) as site:
        yield site
