"""The plain values of Shoal: crawl, options, visit, lease, page, record. No behaviour beyond their fields."""

from shoal.model.crawl import Counts, Crawl, CrawlKind, State
from shoal.model.crawl_spec import CrawlSpec
from shoal.model.lease import Lease
from shoal.model.limits import Limits
from shoal.model.record import Capture, Item, Record
from shoal.model.response import Response, Timings
from shoal.model.visit import Added, AddResult, Outcome, OutcomeCode, Visit, VisitMeta

__all__ = [
    "AddResult",
    "Added",
    "Capture",
    "Counts",
    "Crawl",
    "CrawlKind",
    "CrawlSpec",
    "Item",
    "Lease",
    "Limits",
    "Outcome",
    "OutcomeCode",
    "Record",
    "Response",
    "State",
    "Timings",
    "Visit",
    "VisitMeta",
]
