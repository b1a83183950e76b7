"""The slot map of a cluster, merged from the replies of its nodes."""

from __future__ import annotations

from shoal.store.address import Endpoint
from shoal.store.connection import ReplyError
from shoal.store.slot_map import SLOTS, Claim, ClusterView, merge_views, parse_view

OLD, NEW, OTHER = (Endpoint("127.0.0.1", port) for port in (1, 2, 3))
REST = Claim(2, 100, SLOTS - 1, OTHER)


def test_a_view_has_the_address_and_the_epoch_of_every_primary() -> None:
    slots = [[0, 99, [b"", 7000, b"aa", []], [b"10.0.0.9", 7001, b"bb", []]], [100, 16383, [b"10.0.0.2", 7002, b"cc"]]]
    nodes = (
        b"aa 10.0.0.1:7000@17000 myself,master - 0 1 7 connected 0-99\n"
        b"cc 10.0.0.2:7002@17002 master - 0 1 2 connected 100-16383\n"
    )
    view = parse_view(slots, nodes, b"cluster_state:ok\r\n", "10.0.0.1")
    assert view == ClusterView(
        True, [Claim(7, 0, 99, Endpoint("10.0.0.1", 7000)), Claim(2, 100, 16383, Endpoint("10.0.0.2", 7002))]
    )
    assert not parse_view(slots, nodes, b"cluster_state:fail\r\n", "").healthy
    # A user may be allowed CLUSTER SLOTS alone.
    bare = parse_view(slots, ReplyError("NOPERM"), ReplyError("NOPERM"), "10.0.0.1")
    assert bare.healthy
    assert {claim.epoch for claim in bare.claims} == {0}


def test_the_newer_epoch_wins_against_a_majority_of_nodes() -> None:
    stale = ClusterView(True, [Claim(1, 0, 99, OLD), REST])
    fresh = ClusterView(True, [Claim(7, 0, 99, NEW), REST])
    merged = merge_views([stale, stale, fresh])
    assert merged[0] == merged[99] == NEW
    assert merged[100] == merged[SLOTS - 1] == OTHER


def test_a_node_that_is_out_of_the_cluster_does_not_decide() -> None:
    alone = ClusterView(False, [Claim(9, 0, 99, OLD), REST])
    healthy = ClusterView(True, [Claim(7, 0, 99, NEW), REST])
    assert merge_views([alone, healthy])[0] == NEW
    assert merge_views([alone])[0] == OLD


def test_without_epochs_the_majority_of_nodes_decides() -> None:
    stale, fresh = ClusterView(True, [Claim(0, 0, 99, OLD)]), ClusterView(True, [Claim(0, 0, 99, NEW)])
    assert merge_views([fresh, stale, fresh])[0] == NEW
    assert merge_views([fresh, stale, fresh])[100] is None


def test_a_moved_part_of_a_slot_range_is_found_at_its_new_node() -> None:
    stale = ClusterView(True, [Claim(5, 0, 99, OLD), REST])
    fresh = ClusterView(True, [Claim(5, 0, 49, OLD), Claim(8, 50, 99, NEW), REST])
    merged = merge_views([stale, fresh])
    assert (merged[49], merged[50], merged[99]) == (OLD, NEW, NEW)
