from __future__ import annotations

import pytest

from tests.sinks.outputs import OUTPUTS, Output


@pytest.fixture(params=OUTPUTS, ids=lambda output: output.name)
def output(request: pytest.FixtureRequest) -> Output:
    chosen: Output = request.param
    return chosen
