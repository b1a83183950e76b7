"""`shoal plan` on the command line, and the arithmetic behind it against figures computed by hand."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from shoal.operations import plan as planning
from shoal.operations.plan import plan
from tests.system.shell import ROOT, Shell


def planned(shell: Shell, *args: object) -> dict[str, Any]:
    result = shell.run("plan", *args, "--json")
    assert result.code == 0, result.err
    estimate: dict[str, Any] = json.loads(result.out)
    return estimate


def test_one_host_is_limited_by_politeness_and_more_machines_cannot_help(shell: Shell) -> None:
    result = shell.run("plan", "--pages", "50M", "--hosts", "1")
    assert result.code == 0, result.err
    # 50,000,000 pages * 1.2 s
    assert "694.4 days" in result.out
    assert "politeness: 1 host, one request per host every 1.2 s" in result.out
    assert "2,000 GB to receive" in result.out
    assert "More than 1 worker will not help" in result.err
    assert list(shell.folder.iterdir()) == []


def test_if_workers_are_the_limit_the_plan_states_how_many_would_help(shell: Shell) -> None:
    estimate = planned(shell, "--pages", "10M", "--hosts", "2400", "--workers", 2, "--page-size", "10kb")
    # 2,400 hosts / 1.2 s = 2,000 pages/s for all of them, 400 for one worker
    assert estimate["limit"] == "workers"
    assert estimate["workers_useful"] == 2000 / planning.WORKER_PAGES_PER_SECOND
    assert estimate["pages_per_second"] == 2 * planning.WORKER_PAGES_PER_SECOND
    assert estimate["bytes_per_second"] == estimate["pages_per_second"] * 10_000
    assert estimate["bytes_total"] == 10**11
    result = shell.run("plan", "--pages", "10M", "--hosts", "2400", "--workers", 2)
    assert "will not help" not in result.err
    assert f"workers: {estimate['workers_useful']} would reach the next limit" in result.out


def test_without_a_number_of_workers_the_plan_uses_as_many_as_help() -> None:
    made = plan(pages=10**7, hosts=2400, delay=1, response=0.2, page_bytes=1)
    assert (made.workers, made.limit) == (made.workers_useful, "politeness")
    more = plan(pages=10**7, hosts=2400, delay=1, response=0.2, page_bytes=1, workers=made.workers + 10)
    assert more.pages_per_second == made.pages_per_second


def test_a_million_hosts_exceed_one_store_server(shell: Shell) -> None:
    result = shell.run("plan", "--pages", "1B", "--hosts", "1M")
    estimate = planned(shell, "--pages", "1B", "--hosts", "1M")
    # A delay of 1 s leaves room for one visit in a lease.
    cost = planning.STORE_PAGE_SECONDS + planning.STORE_LEASE_SECONDS + planning.STORE_BATCH_SECONDS / 64
    assert (estimate["limit"], estimate["visits_per_lease"]) == ("store", 1)
    assert estimate["pages_per_second"] == pytest.approx(1 / cost)
    # 1,000,000 hosts / 1.2 s
    assert estimate["nodes_useful"] == math.ceil(833_333.3 * cost)
    assert "store: 1 server" in result.out
    assert (
        f"A cluster of up to {estimate['nodes_useful']:,} nodes (--nodes), which share the hosts, would help"
        in result.err
    )


def test_nodes_share_pages_and_memory_until_something_else_is_the_limit(shell: Shell) -> None:
    single = plan(pages=10**9, hosts=10**6, delay=1, response=0.2, page_bytes=1)
    four = plan(pages=10**9, hosts=10**6, delay=1, response=0.2, page_bytes=1, nodes=4)
    assert four.pages_per_second == pytest.approx(4 * single.pages_per_second)
    assert four.workers == pytest.approx(4 * single.workers, abs=3)
    assert (four.store_bytes_most, four.node_bytes_most) == (single.store_bytes_most, single.store_bytes_most // 4)
    few = plan(pages=10**9, hosts=2400, delay=1, response=0.2, page_bytes=1, nodes=4)
    assert (few.limit, few.nodes_useful) == ("politeness", 1)
    assert few.pages_per_second == pytest.approx(2000)
    slow = plan(pages=10**9, hosts=10**6, delay=1, response=0.2, page_bytes=1, workers=2, nodes=4)
    assert (slow.limit, slow.nodes_useful) == ("workers", 1)
    result = shell.run("plan", "--pages", "1B", "--hosts", "1M", "--nodes", 4)
    assert "52.5 GB if every URL waits at once, 13.1 GB on each of 4 nodes" in result.out


def test_a_store_server_that_needs_too_much_memory_gives_a_warning(shell: Shell) -> None:
    result = shell.run("plan", "--pages", "2B", "--hosts", "1M")
    assert (
        "One server of the store may need 105 GB of memory: with --nodes 2, each needs at most 64.0 GB." in result.err
    )
    assert "may need" not in shell.run("plan", "--pages", "2B", "--hosts", "1M", "--nodes", 2).err


def test_the_cpu_time_of_a_small_crawl_is_in_seconds(shell: Shell) -> None:
    assert "16.0 s of one core in all" in shell.run("plan", "--pages", "10k", "--hosts", "3").out


def test_more_nodes_than_shards_give_a_warning(shell: Shell) -> None:
    result = shell.run("plan", "--pages", "1B", "--hosts", "1M", "--nodes", 17)
    assert "`store.shards` set to 17 or a multiple" in result.err
    assert "shards" not in shell.run("plan", "--pages", "1B", "--hosts", "1M", "--nodes", 16).err


@pytest.mark.parametrize(
    ("delay", "response", "visits", "place_seconds"),
    # So many visits fit into 2 s; the slot is kept for the gaps between them.
    [(1, 0.2, 1, 0.2), (0.5, 0.4, 2, 0.4 + 0.5 / 2), (0.2, 0.3, 3, 0.3 + 0.3 * 2 / 3), (0, 0.2, 10, 0.2)],
)
def test_a_lease_occupies_a_worker_during_the_delays_between_its_visits(
    delay: float, response: float, visits: int, place_seconds: float
) -> None:
    made = plan(pages=10**6, hosts=10**6, delay=delay, response=response, page_bytes=1, workers=1)
    assert made.visits_per_lease == visits
    assert made.worker_pages_per_second == pytest.approx(min(400, 200 / place_seconds))


def test_large_pages_need_more_worker_time_and_small_pages_the_same() -> None:
    usual, small, large = (
        plan(pages=10**6, hosts=10**6, delay=1, response=0.2, page_bytes=size, workers=1)
        for size in (planning.PAGE_BYTES, 1000, 10 * planning.PAGE_BYTES)
    )
    assert small.pages_per_second == usual.pages_per_second == pytest.approx(10 * large.pages_per_second)
    assert small.cpu_core_days == usual.cpu_core_days == pytest.approx(large.cpu_core_days / 10)
    # So bandwidth stays what one core can read.
    assert large.bytes_per_second == pytest.approx(usual.bytes_per_second)


def test_if_the_response_time_exceeds_the_delay_it_becomes_the_delay() -> None:
    assert plan(pages=100, hosts=1, delay=1, response=3, page_bytes=1).seconds == pytest.approx(600)
    assert plan(pages=100, hosts=1, delay=0, response=3, page_bytes=1).seconds == pytest.approx(300)


def test_slow_servers_need_more_workers() -> None:
    slow = plan(pages=10**6, hosts=10_000, delay=60, response=50, page_bytes=1)
    # 200 hosts at once, 50 s each
    assert slow.worker_pages_per_second == 4
    assert slow.workers == 23


def test_the_estimated_memory_agrees_with_the_benchmarks() -> None:
    """The model has two figures for what waits; the third, at 50,000 hosts, was not used to make it."""
    for hosts, measured in ((200, 51.7), (50_000, 65.1), (1_000_000, 341.8)):
        made = plan(pages=10**6, hosts=hosts, delay=0, response=0.1, page_bytes=1)
        assert made.store_bytes_most / 10**6 == pytest.approx(measured, rel=0.03)
    done = plan(pages=2 * 10**6, hosts=200, delay=0, response=0.1, page_bytes=1)
    assert done.store_bytes_end / done.pages == pytest.approx(8.38 + planning.VALIDATOR_BYTES, rel=0.01)


def test_the_constants_match_the_page_of_benchmarks() -> None:
    rows = {}
    for line in (ROOT / "docs/reference/benchmarks.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 3:
            rows[cells[1]] = cells[2].replace(",", "")
    assert "one of 29 characters 42 to 46 bytes" in (ROOT / "docs/reference/store-keys.md").read_text(encoding="utf-8")
    assert planning.VALIDATOR_BYTES == (42 + 46) / 2
    waiting = float(rows["a waiting URL with dedup, 200 hosts"])
    seen = float(rows["a seen URL"])
    assert pytest.approx(waiting) == planning.WAITING_BYTES
    assert pytest.approx(seen) == planning.SEEN_BYTES
    assert pytest.approx(float(rows["a host with one waiting URL"]) - waiting) == planning.HOST_WAITING_BYTES
    assert pytest.approx(float(rows["a host after its only visit"]) - seen) == planning.HOST_DONE_BYTES
    assert pytest.approx(float(rows["server CPU of a page"]) / 10**6) == planning.STORE_PAGE_SECONDS
    assert pytest.approx(float(rows["server CPU of a lease"]) / 10**6) == planning.STORE_LEASE_SECONDS
    assert pytest.approx(float(rows["server CPU of a batch"]) / 10**6) == planning.STORE_BATCH_SECONDS


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (["--hosts", "1"], "Missing option '--pages'"),
        (["--pages", "many", "--hosts", "1"], "'many' is not a number"),
        (["--pages", "0", "--hosts", "1"], "'0' is not a number from 1"),
        (["--pages", "9" * 30, "--hosts", "1"], "is not a number from 1"),
        (["--pages", "10", "--hosts", "1k"], "--hosts 1,000 is more than --pages 10"),
        (["--pages", "10", "--hosts", "1", "--delay", "nan"], "--delay is not a number"),
        (["--pages", "10", "--hosts", "1", "--response", "0"], "0.0 is not in the range"),
        (["--pages", "10", "--hosts", "1", "--nodes", "0"], "0 is not in the range"),
        (["--pages", "10", "--hosts", "1", "--page-size", "big"], "'big' is not a size"),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(shell: Shell, typed: list[str], sentence: str) -> None:
    result = shell.call("plan", *typed)
    assert (result.code, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert sentence in result.err
