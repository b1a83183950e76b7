"""Prometheus metrics. Owns their names, labels and help texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST as MEDIA_TYPE

from shoal.api.fleet_stats import FleetStats
from shoal.frontier.workers import WorkerInfo
from shoal.model.crawl import Counts, State

__all__ = ["MEDIA_TYPE", "families", "render"]

_MAX_REASONS = 100


def render(stats: FleetStats, workers: list[WorkerInfo], streams: int, totals: Counts) -> bytes:
    """The metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Collector(list(families(stats, workers, streams, totals))))
    return generate_latest(registry)


class _Collector:
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def families(stats: FleetStats, workers: list[WorkerInfo], streams: int, totals: Counts) -> Iterator[Metric]:
    counts = stats.counts
    crawls = GaugeMetricFamily("shoal_crawls", "Crawls in the store by state.", labels=["state"])
    for state in State:
        if state is not State.DELETED:
            crawls.add_metric([state.value], stats.crawls.get(state.value, 0))
    yield crawls
    for name, help_text, value in (
        (
            "shoal_queue_length",
            "URLs that are waiting, including retries scheduled for later.",
            stats.redis_queue_length,
        ),
        ("redis_queue_length", "The same as shoal_queue_length.", stats.redis_queue_length),
        ("shoal_visits_leased", "URLs that are leased to workers.", counts.leased),
        ("shoal_workers", "Workers with a heartbeat in the last 30 seconds.", stats.workers),
        ("shoal_hosts_ready", "Hosts that can be requested now and wait for a worker.", stats.hosts_ready),
        ("shoal_hosts_cooling", "Hosts that wait for their delay or back-off to pass.", stats.hosts_cooling),
        ("shoal_hosts_leased", "Slots of hosts that workers hold.", stats.hosts_leased),
        (
            "shoal_workers_wanted",
            "Number of workers that the available hosts can keep busy; 0 if no crawl has work.",
            stats.workers_wanted,
        ),
        ("shoal_lease_age_seconds", "Longest time since a lease was granted or last renewed.", stats.lease_age_seconds),
        ("shoal_api_streams", "Open event streams.", streams),
    ):
        yield GaugeMetricFamily(name, help_text, value=value)
    yield CounterMetricFamily("shoal_pages", "Pages stored, including by deleted crawls.", value=totals.stored)
    for word, verb in (("failed", "failed"), ("excluded", "were excluded")):
        family = CounterMetricFamily(f"shoal_{word}", f"URLs that {verb}, by reason.", labels=["reason"])
        for reason, count in _reasons(totals.reasons, f"{word}:"):
            family.add_metric([reason], count)
        yield family
    heartbeats = [(worker, worker.heartbeat) for worker in workers]
    for field, help_text in (
        ("pages", "Pages stored by a worker since it started."),
        (
            "politeness_seconds",
            "Time that a worker waited for hosts to cool down or for URLs.",
        ),
        ("sink_seconds", "Time that a worker waited for an output."),
        ("leases_lost", "Leases that a worker lost before it finished."),
    ):
        family = CounterMetricFamily(f"shoal_worker_{field}", help_text, labels=["worker", "machine"])
        for worker, heartbeat in heartbeats:
            # Scrapy processes count only pages.
            if field == "pages" or not heartbeat.kind:
                family.add_metric([worker.name, heartbeat.machine], getattr(heartbeat, field))
        yield family


def _reasons(reasons: dict[str, int], prefix: str) -> list[tuple[str, int]]:
    """The most frequent reasons, and the sum of the others. A hostile site cannot add unlimited metrics."""
    counts = Counter({name[len(prefix) :]: count for name, count in reasons.items() if name.startswith(prefix)})
    shown = counts.most_common(_MAX_REASONS)
    others = counts.total() - sum(count for _, count in shown)
    return [*shown, ("(others)", others)] if others else shown
