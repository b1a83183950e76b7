"""Traces and metrics of real workers, as a collector receives them: OTLP over HTTP, decoded from protobuf."""

from __future__ import annotations

import contextlib
import http.server
import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.servers import free_port
from tests.site.responses import Response, page, robots
from tests.site.site import Site
from tests.system.shell import Shell

pytestmark = pytest.mark.full
PHASES = ["lease", "robots", "delay", "fetch", "parse", "links", "write", "acknowledge"]
PROBE = """
import sys
from shoal import Spider

class Probe(Spider):
    def parse(self, page):
        yield {"telemetry": any(name.startswith("opentelemetry") for name in sys.modules)}
"""


def attributes(values: Any) -> dict[str, Any]:
    return {attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value")) for attribute in values}


@dataclass
class Collector:
    """What an OpenTelemetry collector received."""

    port: int = 0
    spans: list[Any] = field(default_factory=list)
    metrics: dict[tuple[str, str], float] = field(default_factory=dict)
    services: set[str] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def receive(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.services.add(attributes(group.resource.attributes)["service.name"])
                for scope in group.scope_spans:
                    self.spans += scope.spans
        elif path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        for point in getattr(metric, metric.WhichOneof("data")).data_points:
                            limit = attributes(point.attributes).get("shoal.limit", "")
                            self.metrics[metric.name, limit] = point.as_int or point.as_double

    def traces(self) -> dict[str, list[Any]]:
        """The visit first, then its phases in order, by the URL of the visit."""
        visits = {span.trace_id: span for span in self.spans if not span.parent_span_id}
        assert len(visits) == sum(not span.parent_span_id for span in self.spans)
        phases: dict[bytes, list[Any]] = {trace: [] for trace in visits}
        for span in self.spans:
            if span.parent_span_id:
                assert span.parent_span_id == visits[span.trace_id].span_id
                phases[span.trace_id].append(span)
        return {
            attributes(visit.attributes)["url.full"]: [
                visit, *sorted(phases[trace], key=lambda span: (span.start_time_unix_nano, PHASES.index(span.name)))
            ]
            for trace, visit in visits.items()
        }  # fmt: skip


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.headers["Content-Type"] == "application/x-protobuf"
            collector.receive(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.smoke
def test_a_visit_is_one_trace_whose_spans_follow_each_other(site: Site, shell: Shell) -> None:
    first, second = site.take(2)
    for host in (first, second):
        site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /private\n"))
    site.at(first, "/", page("/a", "/private", "/gone", f"http://{second}/"))
    site.at(first, "/a", page())
    site.at(first, "/gone", Response(status=404))
    site.at(second, "/", Response(body="<title>slow</title>", after=0.2))
    with collecting() as collector:
        shell.environ = {"SHOAL_TELEMETRY_URL": collector.url, "SHOAL_TELEMETRY_TRACES": "1"}
        result = shell.crawl(f"http://{first}/", "--scope", "any", "--delay", "0.1", "--workers", "1",
                             "--name", "traced", "--out", "pages.db")  # fmt: skip
    assert result.code == 0, result.err
    traces = collector.traces()
    assert set(traces) == {f"http://{first}{path}" for path in ("/", "/a", "/private", "/gone")} | {f"http://{second}/"}
    assert collector.services == {"shoal"}
    for visit, *phases in traces.values():
        # Without gaps, from the lease to the reply of the store.
        edges = [(span.start_time_unix_nano, span.end_time_unix_nano) for span in phases]
        assert edges[0][0] == visit.start_time_unix_nano
        assert edges[-1][1] == visit.end_time_unix_nano
        assert all(before[1] == after[0] for before, after in itertools.pairwise(edges))
    names = {url: [span.name for span in spans] for url, spans in traces.items()}
    assert names[f"http://{first}/a"] == ["visit", *PHASES]
    # A forbidden page is not fetched.
    assert "fetch" not in names[f"http://{first}/private"]
    details = {url: attributes(spans[0].attributes) for url, spans in traces.items()}
    assert details[f"http://{first}/"]["http.response.status_code"] == 200
    assert details[f"http://{first}/"]["shoal.links"] == 4
    assert details[f"http://{first}/private"]["shoal.reason"] == "robots.txt"
    assert details[f"http://{first}/gone"]["shoal.outcome"] == "failed"
    assert traces[f"http://{first}/gone"][0].status.code == 2
    # The slow response is in the span that waited for it.
    (fetch,) = (span for span in traces[f"http://{second}/"] if span.name == "fetch")
    assert fetch.end_time_unix_nano - fetch.start_time_unix_nano >= 200e6
    assert collector.metrics["shoal.worker.pages", ""] == 3
    # Four pages and two robots.txt.
    assert collector.metrics["shoal.worker.requests", ""] == len(site.requests(first, second)) == 6
    assert collector.metrics["shoal.worker.seconds", "politeness"] > 0


def test_a_share_of_the_visits_is_traced_and_all_are_counted(site: Site, shell: Shell) -> None:
    tree = site.plant(200, site.take(4))
    with collecting() as collector:
        shell.environ = {"SHOAL_TELEMETRY_URL": collector.url, "SHOAL_TELEMETRY_TRACES": "0.2"}
        result = shell.crawl(tree.url(0), "--scope", "any", "--delay", "0", "--workers", "1", "--out", "pages.db")
    assert result.code == 0, result.err
    assert len(shell.rows()) == 200
    assert collector.metrics["shoal.worker.pages", ""] == 200
    # Six standard deviations of 40.
    assert 6 <= len(collector.traces()) <= 74
    assert set(Counter(span.name for span in collector.spans)) == {"visit", *PHASES}


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:{port}"], ids=["off", "without a collector"])
def test_disabled_telemetry_is_not_imported_and_a_missing_collector_is_not_an_error(
    site: Site, shell: Shell, tmp_path: Path, url: str
) -> None:
    tree = site.plant(20, site.take(1))
    (tmp_path / "probe.py").write_text(PROBE)
    shell.environ = {"SHOAL_TELEMETRY_URL": url.format(port=free_port()), "SHOAL_TELEMETRY_TRACES": "1"}
    result = shell.crawl(
        "--spider", "probe.py:Probe", tree.url(0), "--delay", "0", "--workers", "1", "--out", "items.jsonl"
    )
    assert result.code == 0, result.err
    items = (tmp_path / "items.jsonl").read_text().splitlines()
    assert items
    assert all(f'"telemetry":{str(bool(url)).lower()}' in line.replace(" ", "") for line in items), items[0]
