"""A batch of finished visits, sorted for its delivery: by lease, by output, and by crawl. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shoal.frontier import Done
from shoal.leases.held_lease import HeldLease
from shoal.model.record import RecordKey
from shoal.sinks.contract import Stored
from shoal.worker.outcome import PageSignals, VisitResult
from shoal.worker.outputs import Output
from shoal.worker.revisits import tag_validator

ByLease = dict[HeldLease, list[VisitResult]]


class SortedBatch(NamedTuple):
    """What a batch adds to the outputs and the store.

    keys       keys of all records that are written, by the token of their lease
    outputs    the records for each output
    tagged     validators that name the text of their page, by crawl: pairs of URL and validator
    plain      the other validators
    signalled  what sitemaps and feeds say about other pages, each with its crawl
    """

    keys: dict[str, list[RecordKey]]
    outputs: dict[Output, list[Stored]]
    tagged: dict[str, list[tuple[str, str]]]
    plain: dict[str, list[tuple[str, str]]]
    signalled: list[tuple[str, PageSignals]]


def sort_by_lease(batch: Iterable[VisitResult]) -> ByLease:
    by_lease: ByLease = {}
    for result in batch:
        by_lease.setdefault(result.lease, []).append(result)
    return by_lease


def sort_for_delivery(by_lease: ByLease) -> SortedBatch:
    keys: dict[str, list[RecordKey]] = {}
    outputs: dict[Output, list[Stored]] = {}
    tagged: dict[str, list[tuple[str, str]]] = {}
    plain: dict[str, list[tuple[str, str]]] = {}
    signalled: list[tuple[str, PageSignals]] = []
    for lease, results in by_lease.items():
        for result in results:
            record, context = result.record, result.context
            if context is None:
                continue
            for stored in result.stored:
                keys.setdefault(lease.lease.token, []).append(stored.key)
                for output, kinds in context.outputs:
                    if isinstance(stored, kinds):
                        outputs.setdefault((output, bool(context.spider)), []).append(stored)
            if result.change is not None and context.change_outputs:
                keys.setdefault(lease.lease.token, []).append(result.change.key)
                for uri in context.change_outputs:
                    outputs.setdefault((uri, True), []).append(result.change)
            if result.version is not None:
                keys.setdefault(lease.lease.token, []).append(result.version.key)
                for uri in context.version_outputs:
                    outputs.setdefault((uri, True), []).append(result.version)
            if result.signals is not None:
                signalled.append((result.visit.crawl, result.signals))
            if record is None:
                continue
            # A later 304 must not confirm the record of a failure.
            validator = "" if record.error else record.etag or record.last_modified
            if result.visit.is_plain and (validator or (result.visit.is_revisit and record.status != 304)):
                validators = tagged if result.outcome.history else plain
                pair = record.url, tag_validator(validator, result.outcome)
                validators.setdefault(result.visit.crawl, []).append(pair)
    return SortedBatch(keys, outputs, tagged, plain, signalled)


def done_of(lease: HeldLease, results: list[VisitResult]) -> Done:
    """The acknowledgement for a lease: the outcomes of its visits, and how its host responded."""
    return Done(
        lease=lease.lease, outcomes=[result.outcome for result in results],
        finished_ago_seconds=lease.finished_ago_seconds, success=lease.success,
        response_seconds=lease.response_seconds, delay_seconds=lease.adaptive_seconds,
    )  # fmt: skip
