"""The plain values Shoal passes around: crawl, visit, lease. No behaviour beyond what follows from their fields."""

from shoal.model.crawl import Counts, Crawl, Limits, State
from shoal.model.lease import Lease
from shoal.model.visit import Added, Outcome, Visit

__all__ = ["Added", "Counts", "Crawl", "Lease", "Limits", "Outcome", "State", "Visit"]
