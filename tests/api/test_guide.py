"""The guide to crawls as a service prints what it says."""

from __future__ import annotations

import pytest

from tests.servers import free_port, program
from tests.system.test_guides import Reader, reader

pytestmark = pytest.mark.full

__all__ = ["reader"]


@pytest.mark.full
def test_the_guide_to_the_service_prints_the_output_that_it_shows(reader: Reader) -> None:
    program("curl", "apt-get install curl")
    reader.instead |= {r"\b8080\b": str(free_port())}
    reader.follow("docs/guides/service.md")
