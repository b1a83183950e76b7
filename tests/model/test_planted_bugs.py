"""A test of the test: the model check must find each of these bugs, planted into the scripts."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from shoal.frontier import scripts, shards
from shoal.store import Script
from tests.model.machine import Fleet
from tests.model.shard_loss import ShardLoss, read_process_from_key
from tests.servers import Server

pytestmark = [pytest.mark.full, pytest.mark.long]

# name -> (script or '' for all, what it says, what it says with the bug), ...
BUGS: dict[str, list[tuple[str, str, str]]] = {
    "the gap counts from the start of a request": [
        ("acknowledge", "tonumber(lease.place), tonumber(lease.f),", "tonumber(lease.place), tonumber(lease.start),"),
    ],
    "a visit is acknowledged by its URL, whichever worker holds it": [
        (
            "acknowledge",
            "local lease = not stale(b.token) and readLease(b.token)",
            """local lease = not stale(b.token) and readLease(b.token)
            if not lease then
              for _, other in ipairs(call('ZRANGE', P .. 'leases', 0, -1)) do
                local l = readLease(other)
                if l and l.host == b.host then lease = l b.token = other end
              end
            end""",
        ),
    ],
    "a reap drops the visits of a lease": [
        ("", "giveBack(lease.host, packed, function() return expired end)", ""),
    ],
    "a reap loses the visits and miscounts them as ended": [
        ("", "giveBack(lease.host, packed, function() return expired end)",
         "for _, p in ipairs(packed) do local k = unpackVisit(p) if crawl(k) then bump(k, 'l', -1) end end"),
    ],
    "add arms an idle host at once": [
        ("add", "local slot, gate = freeSlot(v)", "local slot, gate = freeSlot(v), 0"),
        ("lease", "elseif gate > NOW then", "elseif gate > NOW and candidate[2] > 0 then"),
    ],
    "a token is given out again after the store lost writes": [
        ("lease", "local token = RUN .. '.'", "local token = '0123456789.'"),
    ],
    "nothing is held after the store lost writes": [
        ("epoch", "(safe and step == 0) and 0 or 1", "0"),
        ("epoch", "if not safe or step ~= 0 then", "if false then"),
    ],
    "a host is not armed again after its lease": [
        (
            "acknowledge",
            "    armed = arm(b.host, leaseEnded and lease.place and 'freed') or armed\n  end\nend\nsavePlans()",
            "  end\nend\nsavePlans()",
        ),
    ],
    "a resumed crawl leaves its hosts parked": [
        ("sync", "if st == 'r' and before ~= 'r' then", "if false then"),
    ],
    "a page that has no slot in the budget is forgotten": [
        ("lease", "plan(key, host, prio, entry, slotTime, true)", ""),
    ],
    "a page that is excluded stays among the pages of its host": [
        ("acknowledge", "    uncount(key, host, entry)\n    if visit.why == 'bytes per host'",
         "    if visit.why == 'bytes per host'"),
    ],
    "an expired lease leaves no gap": [
        ("", "tonumber(lease.place), deadline, tonumber(lease.delay))", "tonumber(lease.place), nil, 0)"),
    ],
}  # fmt: skip


@pytest.fixture
def planted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = BUGS[request.param]
    seen = set()

    def with_bug(name: str) -> Script:
        source = scripts.script(name).source
        for index, (where, right, wrong) in enumerate(changes):
            if where in ("", name) and right in source:
                source = source.replace(right, wrong)
                seen.add(index)
        return Script(name, source)

    for name in scripts.names():
        with_bug(name)
    assert seen == set(range(len(changes))), "the scripts have changed: plant the bug in what they say now"
    monkeypatch.setattr(shards, "script", with_bug)


class Hunted(Fleet):
    """A fleet in which more happens in fewer steps: operators and restarts matter for a few of the bugs only."""

    drains = False


# Random choices that soon meet the bug. If the model changes, so do its runs, and a hunt may take longer.
SEEDS = {
    "links to other shards are not kept": 49,
    "a home shard that lost writes grants pages that nobody receives": 25,
    "a page that has no slot in the budget is forgotten": 25,
}
SEED = 4


def hunt(server: Server, fleet: type[Fleet], bug: str) -> None:
    Fleet.server = server
    Fleet.broken = ""
    run_state_machine_as_test(
        seed(SEEDS.get(bug, SEED))(fleet),
        settings=settings(
            max_examples=1000,
            stateful_step_count=60,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
            print_blob=False,
            report_multiple_bugs=False,
        ),
    )


# The same for a cluster one of whose shards loses writes.
SHARD_BUGS: dict[str, tuple[str, str, str]] = {
    "links to other shards are not kept": (
        "acknowledge",
        "for _, entry in ipairs(links) do journal(entry[1], entry[2], entry[3], request) end",
        "",
    ),
    "a home shard that lost writes grants pages that nobody receives": (
        "draw",
        "if granted < received then",
        "if false then",
    ),
}


@pytest.mark.model
@pytest.mark.parametrize("bug", SHARD_BUGS)
def test_a_planted_bug_is_caught_if_one_shard_loses_writes(
    model_server: Server, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, right, wrong = SHARD_BUGS[bug]

    def plant(name: str, source: str) -> str:
        assert name != script or right in source, "the scripts have changed: plant the bug in what they say now"
        return source.replace(right, wrong) if name == script else source

    read_process_from_key(monkeypatch, plant)
    with pytest.raises((AssertionError, Flaky)):
        hunt(model_server, ShardLoss, bug)
    assert Fleet.broken, "hypothesis lost its way, but no promise was seen to break"


@pytest.mark.model
@pytest.mark.parametrize("planted", BUGS, indirect=True)
@pytest.mark.usefixtures("planted")
def test_a_planted_bug_is_caught(model_server: Server, request: pytest.FixtureRequest) -> None:
    # Flaky: the store picks at random which parked host comes back first, so a run may not fail twice in a row.
    Hunted.operators = "resumed" in request.node.name
    # A restart reads the file of all runs before it again.
    Hunted.restarts = "lost writes" in request.node.name
    with pytest.raises((AssertionError, Flaky)):
        hunt(model_server, Hunted, request.node.callspec.params["planted"])
    assert Fleet.broken, "hypothesis lost its way, but no promise was seen to break"
