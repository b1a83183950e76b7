"""Every fuzz target works, accepts its seeds, and survives a few thousand mutations of them."""

from __future__ import annotations

import itertools

import pytest

from tests.fuzz.mutation import mutations
from tests.fuzz.targets import SEEDS, TARGETS, run

COUNT = 300


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_survives_its_seeds_and_their_mutations(name: str) -> None:
    for data in (*SEEDS[name], b"", *itertools.islice(mutations(SEEDS[name], seed=1), COUNT)):
        run(name, data)


def test_each_target_has_seeds() -> None:
    assert SEEDS.keys() == TARGETS.keys()
