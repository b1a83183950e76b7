"""Traces and metrics of a worker, sent to an OpenTelemetry collector: `telemetry.url`, extra `otel`.

Owns what is measured and how it is sent. Imported only if `telemetry.url` is set: the classes that visit and deliver
know nothing of it, and are replaced by the subclasses here. A visit is traced or not as a whole, by chance; its phases
follow each other, so that the spans of a trace cover the visit without gaps:

    lease -> robots -> delay -> fetch -> parse -> links -> write -> acknowledge

A span is made when the visit is acknowledged, from times that were noted on the way. Sending happens in threads, and
what the collector does not take is dropped: telemetry delays no visit.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from shoal.leases.held_lease import HeldLease
from shoal.model.visit import OutcomeCode, Visit
from shoal.model.worker_report import WorkerReport
from shoal.politeness.robots_rules import Rules
from shoal.settings import masked
from shoal.settings.sections import TelemetrySettings
from shoal.sinks import Sink
from shoal.sinks.contract import Stored
from shoal.urls.canonical import Target
from shoal.version import __version__
from shoal.worker.batch import ByLease
from shoal.worker.crawl_context import CrawlContext
from shoal.worker.delivery import Delivery
from shoal.worker.host_session import HostSession
from shoal.worker.outcome import FetchResult, LinksRefused, VisitResult
from shoal.worker.outputs import Output
from shoal.worker.session_resources import SessionResources

# How long the collector may take for one call, and for the last calls of a worker that stops.
_SEND_SECONDS = 2.0
# Traces of visits that are not acknowledged yet. More mean that an output is unavailable; the oldest are dropped.
_MOST_OPEN = 2000
# Counts of a worker's report: the name of the metric, its unit, the field.
COUNTERS = (
    ("shoal.worker.pages", "{page}", "pages"),
    ("shoal.worker.requests", "{request}", "requests"),
    ("shoal.worker.received", "By", "bytes"),
    ("shoal.worker.retries", "{visit}", "retries"),
    ("shoal.worker.items", "{item}", "items"),
    ("shoal.worker.leases", "{lease}", "leases"),
    ("shoal.worker.leases_lost", "{lease}", "leases_lost"),
)
# What a worker spends its time on, as one metric with the attribute `shoal.limit`.
LIMITS = ("politeness", "network", "sink", "store", "cpu")


class VisitTrace:
    """The phases of one visit: each begins when the one before it ends."""

    __slots__ = ("attributes", "error", "phases", "visit")

    def __init__(self, visit: Visit, leased_ns: int) -> None:
        self.visit = visit
        self.phases: list[tuple[str, int]] = [("lease", leased_ns)]
        self.attributes: dict[str, str | int] = {}
        self.error = ""

    def enter(self, phase: str) -> None:
        # A phase that is repeated, because a shard or an output did not respond, is one.
        if self.phases[-1][0] != phase:
            self.phases.append((phase, time.time_ns()))


class Telemetry:
    """The connection of one worker to a collector."""

    def __init__(self, settings: TelemetrySettings, worker: str, report: WorkerReport) -> None:
        self._share = settings.traces
        self._open: dict[tuple[str, int], VisitTrace] = {}
        # Standard attributes may be added with OTEL_RESOURCE_ATTRIBUTES, headers with OTEL_EXPORTER_OTLP_HEADERS.
        resource = Resource.create(
            {"service.name": "shoal", "service.version": __version__, "service.instance.id": worker}
        )
        url = settings.url.rstrip("/")
        self._spans = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces", timeout=_SEND_SECONDS)
        self._spans.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._spans.get_tracer("shoal", __version__)
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint=f"{url}/v1/metrics", timeout=_SEND_SECONDS),
            export_interval_millis=1000 * settings.metrics_seconds,
        )
        self._metrics = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        meter = self._metrics.get_meter("shoal", __version__)
        for name, unit, field in COUNTERS:
            meter.create_observable_counter(name, [partial(_count, report, field)], unit)
        meter.create_observable_counter("shoal.worker.seconds", [partial(_seconds, report)], "s")
        meter.create_observable_gauge("shoal.worker.open_hosts", [partial(_count, report, "open_hosts")], "{host}")

    def session(self, resources: SessionResources, lease: HeldLease) -> HostSession:
        return TracedSession(self, resources, lease)

    def delivery(self, *args: Any, **more: Any) -> Delivery:
        """A delivery, with the arguments of `Delivery`."""
        delivery = TracedDelivery(*args, **more)
        delivery.telemetry = self
        return delivery

    def begin(self, lease: HeldLease, visit: Visit, leased_ns: int) -> VisitTrace | None:
        """A trace for a visit that is due now, or None if it is not in the sample."""
        if random.random() >= self._share:
            return None
        trace = VisitTrace(visit, leased_ns)
        self._open[lease.lease.token, visit.number] = trace
        if len(self._open) > _MOST_OPEN:
            del self._open[next(iter(self._open))]
        return trace

    def discard(self, lease: HeldLease, visit: Visit) -> None:
        """The visit was not made. The worker that makes it traces it."""
        self._open.pop((lease.lease.token, visit.number), None)

    def enter(self, phase: str, results: Iterable[VisitResult]) -> None:
        if self._open:
            for result in results:
                if trace := self._open.get((result.lease.lease.token, result.visit.number)):
                    trace.enter(phase)

    def end(self, result: VisitResult, *, lost: bool) -> None:
        """The visit was acknowledged, or its lease was lost: its spans are sent."""
        trace = self._open.pop((result.lease.lease.token, result.visit.number), None)
        if trace is None:
            return
        outcome = result.outcome
        attributes: dict[str, str | int] = {
            "url.full": masked(trace.visit.url), "shoal.crawl": trace.visit.crawl,
            "shoal.host": result.lease.lease.host, "shoal.depth": trace.visit.depth,
            "shoal.outcome": "lost" if lost else outcome.code.name.lower(), "shoal.links": len(result.visits),
            **trace.attributes,
        }  # fmt: skip
        if outcome.reason:
            attributes["shoal.reason"] = outcome.reason
        ended_ns = time.time_ns()
        root = self._tracer.start_span(
            "visit", kind=SpanKind.INTERNAL, attributes=attributes, start_time=trace.phases[0][1]
        )
        if lost or outcome.code is OutcomeCode.FAILED:
            root.set_status(Status(StatusCode.ERROR, "lease lost" if lost else outcome.reason))
        inside = set_span_in_context(root)
        ends = [started_ns for _, started_ns in trace.phases[1:]] + [ended_ns]
        for (phase, started_ns), phase_ended_ns in zip(trace.phases, ends, strict=True):
            kind = SpanKind.CLIENT if phase == "fetch" else SpanKind.INTERNAL
            span = self._tracer.start_span(phase, inside, kind, start_time=started_ns)
            if phase == "fetch" and trace.error:
                span.set_status(Status(StatusCode.ERROR, trace.error))
            span.end(phase_ended_ns)
        root.end(ended_ns)

    def close(self) -> None:
        """Send what is left. It blocks for seconds at most: the worker has released its leases before."""
        self._spans.force_flush(int(1000 * _SEND_SECONDS))
        self._spans.shutdown()
        self._metrics.shutdown(1000 * _SEND_SECONDS)


def _count(report: WorkerReport, field: str, options: CallbackOptions) -> list[Observation]:
    return [Observation(getattr(report, field))]


def _seconds(report: WorkerReport, options: CallbackOptions) -> list[Observation]:
    return [Observation(getattr(report, f"{limit}_seconds"), {"shoal.limit": limit}) for limit in LIMITS]


class TracedSession(HostSession):
    """A host session that notes when its visits pass from phase to phase."""

    def __init__(self, telemetry: Telemetry, resources: SessionResources, lease: HeldLease) -> None:
        super().__init__(resources, lease)
        self._telemetry = telemetry
        self._trace: VisitTrace | None = None
        self._leased_ns = time.time_ns()
        # Visits of top-ups were leased later than the others.
        self._topped_up_ns: dict[int, int] = {}

    async def _top_up(self) -> None:
        known = len(self._todo)
        await super()._top_up()
        now_ns = time.time_ns()
        self._topped_up_ns.update({visit.number: now_ns for visit in list(self._todo)[known:]})

    async def _visit(self, visit: Visit) -> VisitResult:
        leased_ns = self._topped_up_ns.pop(visit.number, self._leased_ns)
        self._trace = trace = self._telemetry.begin(self._lease, visit, leased_ns)
        if trace is None:
            return await super()._visit(visit)
        trace.enter("robots")
        try:
            return await super()._visit(visit)
        except BaseException:
            self._telemetry.discard(self._lease, visit)
            raise

    async def _visit_page(
        self, visit: Visit, target: Target, context: CrawlContext, rules: Rules | None
    ) -> VisitResult:
        if self._trace is not None:
            self._trace.enter("delay")
        return await super()._visit_page(visit, target, context, rules)

    async def _fetch(self, visit: Visit, target: Target, context: CrawlContext) -> FetchResult:
        trace = self._trace
        if trace is None:
            return await super()._fetch(visit, target, context)
        trace.enter("fetch")
        fetched = await super()._fetch(visit, target, context)
        trace.attributes["http.request.method"] = visit.method
        if fetched.response is not None:
            trace.attributes["http.response.status_code"] = fetched.response.status
            trace.attributes["http.response.body.size"] = len(fetched.response.body)
        else:
            trace.error = fetched.decision.reason
        return fetched

    async def _process(self, visit: Visit, target: Target, context: CrawlContext, fetched: FetchResult) -> VisitResult:
        if self._trace is not None:
            self._trace.enter("parse")
        return await super()._process(visit, target, context, fetched)


class TracedDelivery(Delivery):
    """A delivery that notes when a batch of visits passes from phase to phase."""

    telemetry: Telemetry

    async def _add(self, batch: list[VisitResult]) -> dict[str, LinksRefused]:
        self.telemetry.enter("links", batch)
        return await super()._add(batch)

    async def _write(self, outputs: dict[Output, list[Stored]], receipt: bytes, by_lease: ByLease) -> list[Sink]:
        self._enter("write", by_lease)
        written = await super()._write(outputs, receipt, by_lease)
        self._enter("acknowledge", by_lease)
        return written

    def _close_visits(self, by_lease: ByLease, lost: set[str]) -> None:
        super()._close_visits(by_lease, lost)
        for lease, results in by_lease.items():
            for result in results:
                self.telemetry.end(result, lost=lease.lease.token in lost)

    def _enter(self, phase: str, by_lease: ByLease) -> None:
        for results in by_lease.values():
            self.telemetry.enter(phase, results)
