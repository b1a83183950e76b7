"""Generate the Grafana dashboard from the list of metrics: python tools/dashboard.py [--check]

The dashboard has every metric of `shoal serve`. A metric that PANELS does not name gets its own panel, so that a new
metric is never forgotten.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from shoal.api.fleet_stats import FleetStats
from shoal.api.metrics import families
from shoal.frontier.workers import WorkerInfo
from shoal.model.crawl import Counts

TARGET = Path(__file__).resolve().parents[1] / "deploy/monitoring/dashboards/shoal.json"
# Title, unit, and the queries with their legends.
PANELS: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("Pages per second", "short", [("sum(rate(shoal_pages_total[5m]))", "stored")]),
    (
        "Workers",
        "short",
        [("shoal_workers", "alive"), ("shoal_workers_wanted", "wanted")],
    ),
    (
        "Hosts",
        "short",
        [("shoal_hosts_leased", "leased"), ("shoal_hosts_ready", "ready"), ("shoal_hosts_cooling", "cooling")],
    ),
    ("Queue", "short", [("shoal_queue_length", "waiting"), ("shoal_visits_leased", "leased")]),
    ("Crawls", "short", [("shoal_crawls", "{{state}}")]),
    ("Failures per second", "short", [("topk(10, rate(shoal_failed_total[5m]))", "{{reason}}")]),
    ("Exclusions per second", "short", [("topk(10, rate(shoal_excluded_total[5m]))", "{{reason}}")]),
    ("Pages per second by worker", "short", [("rate(shoal_worker_pages_total[5m])", "{{worker}}")]),
    (
        "What workers wait for",
        "percentunit",
        [
            ("avg(rate(shoal_worker_politeness_seconds_total[5m]))", "politeness or URLs"),
            ("avg(rate(shoal_worker_sink_seconds_total[5m]))", "an output"),
        ],
    ),
    ("Longest time since a lease was renewed", "s", [("shoal_lease_age_seconds", "age")]),
    ("Leases lost per hour", "short", [("sum(increase(shoal_worker_leases_lost_total[1h]))", "lost")]),
]
# Metrics that repeat another metric under a second name.
_ALIASES = {"redis_queue_length"}
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3


def metric_names() -> list[tuple[str, str]]:
    """The names of metrics as Prometheus scrapes them, with their help texts."""
    empty = FleetStats(
        crawls={}, counts=Counts(), workers=0, pages_per_second=0, hosts_ready=0, hosts_cooling=0, hosts_leased=0,
        lease_age_seconds=0, workers_wanted=0, redis_queue_length=0,
    )  # fmt: skip
    worker = WorkerInfo(name="", seen_seconds_ago=0, info={})
    return [
        (f"{family.name}_total" if family.type == "counter" else family.name, family.documentation)
        for family in families(empty, [worker], 0, empty.counts)
    ]


def dashboard() -> dict[str, Any]:
    panels = list(PANELS)
    queries = " ".join(query for _, _, pairs in panels for query, _ in pairs)
    for name, text in metric_names():
        if name not in queries and name not in _ALIASES:
            query = f"rate({name}[5m])" if name.endswith("_total") else name
            panels.append((text.rstrip("."), "short", [(query, name)]))
    return {
        "uid": "shoal-fleet",
        "title": "Shoal",
        "tags": ["shoal"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
        },
        "panels": [_panel(number, *panel) for number, panel in enumerate(panels)],
    }


def _panel(number: int, title: str, unit: str, queries: list[tuple[str, str]]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(65 + index), "datasource": source, "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(queries)
        ],
    }


def main(arguments: list[str]) -> int:
    text = json.dumps(dashboard(), indent=1) + "\n"
    if "--check" in arguments:
        if not TARGET.exists() or TARGET.read_text() != text:
            print("The dashboard is out of date; run: make docs", file=sys.stderr)
            return 1
        return 0
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
