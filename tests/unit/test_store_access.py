"""The check of `make check` that raw keys stay inside the frontier."""

from __future__ import annotations

import pytest

from tools.check_store_access import main, violations


def test_only_the_frontier_package_accesses_keys() -> None:
    assert main() == 0


@pytest.mark.parametrize(
    "source",
    [
        "frontier.shards.store.command('GET', key)",
        "frontier.shards.command('GET', key)",
        "self._frontier.shards.call('clock', 0, ())",
        "for prefix in frontier.shards.prefixes: pass",
        "from shoal.frontier.keys import prefix",
        "from shoal.frontier import keys",
        "import shoal.frontier.keys",
    ],
)
def test_raw_keys_are_found(source: str) -> None:
    assert len(list(violations(source))) == 1


def test_the_number_of_shards_is_not_a_raw_key() -> None:
    assert not list(violations("frontier.shards.count + frontier.shards.of('a.example')"))
