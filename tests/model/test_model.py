"""The frontier's promises under random steps, on the real scripts (see machine.py)."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Fleet
from tests.model.shard_loss import ShardLoss, read_process_from_key
from tests.servers import Server

STEPS = int(os.environ.get("STEPS", "3000"))
QUICK_STEPS = 600
STEPS_A_RUN = 60


@pytest.mark.model
@pytest.mark.parametrize("steps", [QUICK_STEPS, pytest.param(STEPS, marks=pytest.mark.full)])
def test_no_step_of_a_fleet_breaks_a_guarantee(model_server: Server, steps: int) -> None:
    check(Fleet, model_server, steps)


@pytest.mark.model
@pytest.mark.parametrize("steps", [QUICK_STEPS, pytest.param(STEPS, marks=pytest.mark.full)])
def test_no_loss_of_writes_in_one_shard_breaks_a_guarantee(
    model_server: Server, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_process_from_key(monkeypatch)
    check(ShardLoss, model_server, steps)


def check(fleet: type[Fleet], server: Server, steps: int) -> None:
    Fleet.server = server
    Fleet.steps = 0
    run_state_machine_as_test(
        fleet,
        settings=settings(
            max_examples=max(1, steps // STEPS_A_RUN),
            stateful_step_count=STEPS_A_RUN,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
            print_blob=False,
            report_multiple_bugs=False,
        ),
    )
    print(f"{Fleet.steps} steps")
    assert Fleet.steps >= min(steps * 0.8, 2000)
