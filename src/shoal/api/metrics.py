"""Metrics for Prometheus. Owns their names, labels and help texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST as MEDIA_TYPE

from shoal.api.fleet_stats import FleetStats, number_of, text_of
from shoal.model.crawl import Counts, State

__all__ = ["MEDIA_TYPE", "families", "render"]

_MOST_REASONS = 100


def render(stats: FleetStats, infos: list[Any], streams: int, ended: Counts) -> bytes:
    """The metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Collected(list(families(stats, infos, streams, ended))))
    return generate_latest(registry)


class _Collected:
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def families(stats: FleetStats, infos: list[Any], streams: int, ended: Counts) -> Iterator[Metric]:
    counts = stats.counts
    crawls = GaugeMetricFamily("shoal_crawls", "Crawls in the store, by state.", labels=["state"])
    for state in State:
        if state is not State.DELETED:
            crawls.add_metric([state.value], stats.crawls.get(state.value, 0))
    yield crawls
    for name, meaning, value in (
        ("shoal_queue_length", "URLs that wait, now or later.", counts.waiting + counts.later),
        ("shoal_visits_leased", "URLs that workers hold.", counts.leased),
        ("shoal_workers", "Workers that were heard of in the last 30 seconds.", stats.workers),
        ("shoal_hosts_ready", "Hosts that may be asked now and wait for a worker.", stats.hosts_ready),
        ("shoal_hosts_cooling", "Hosts that wait for their delay or back-off.", stats.hosts_cooling),
        ("shoal_lease_age_seconds", "Time since the lease was renewed that waits longest.", stats.lease_age_seconds),
        ("shoal_api_streams", "Clients that watch events.", streams),
    ):
        yield GaugeMetricFamily(name, meaning, value=value)
    yield CounterMetricFamily("shoal_pages", "Pages stored, also by crawls that were deleted.", value=ended.stored)
    for word in ("failed", "excluded"):
        family = CounterMetricFamily(f"shoal_{word}", f"URLs that ended as {word}, by reason.", labels=["reason"])
        for reason, count in _reasons(ended.reasons, f"{word}:"):
            family.add_metric([reason], count)
        yield family
    for field, meaning in (
        ("pages", "Pages stored by a worker since it started."),
        ("politeness_seconds", "Time in which a worker had nothing to fetch: hosts cooled down, or nothing waited."),
        ("sink_seconds", "Time in which a worker waited for an output."),
        ("leases_lost", "Leases that a worker lost."),
    ):
        family = CounterMetricFamily(f"shoal_worker_{field}", meaning, labels=["worker", "machine"])
        for worker in infos:
            if field in worker.info:
                family.add_metric([worker.name, text_of(worker.info, "machine")], number_of(worker.info, field))
        yield family


def _reasons(reasons: dict[str, int], prefix: str) -> list[tuple[str, int]]:
    """The most frequent; the others together, so that a hostile site cannot make metrics without end."""
    mine = Counter({name[len(prefix) :]: count for name, count in reasons.items() if name.startswith(prefix)})
    shown = mine.most_common(_MOST_REASONS)
    rest = mine.total() - sum(count for _, count in shown)
    return [*shown, ("(others)", rest)] if rest else shown
