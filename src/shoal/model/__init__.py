"""The plain values Shoal passes around: crawl, policy, visit, lease, page, record. No behaviour beyond their fields."""

from shoal.model.crawl import Counts, Crawl, CrawlKind, Limits, State
from shoal.model.crawl_spec import Policy
from shoal.model.lease import Lease
from shoal.model.record import Capture, Item, Record
from shoal.model.response import Response, Timings
from shoal.model.visit import Added, Outcome, Visit

__all__ = [
    "Added",
    "Capture",
    "Counts",
    "Crawl",
    "CrawlKind",
    "Item",
    "Lease",
    "Limits",
    "Outcome",
    "Policy",
    "Record",
    "Response",
    "State",
    "Timings",
    "Visit",
]
