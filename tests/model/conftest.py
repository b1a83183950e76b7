"""A server for the model check only: it is killed, and its file is truncated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import Server, server


@pytest.fixture
def model_server(tmp_path: Path) -> Iterator[Server]:
    # everysec: the frontier must expect that a restart has lost writes, and hold.
    with server(
        tmp_path / "store", unix=True, options={"appendfsync": "everysec", "auto-aof-rewrite-percentage": "0"}
    ) as valkey:
        yield valkey
