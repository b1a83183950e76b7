"""Shoal crawls the web with any number of machines as if it were one careful visitor."""

from shoal.frontier import Done, Frontier, Host
from shoal.model import Added, Counts, Crawl, Lease, Limits, Outcome, State, Visit
from shoal.store import Store

__all__ = [
    "Added",
    "Counts",
    "Crawl",
    "Done",
    "Frontier",
    "Host",
    "Lease",
    "Limits",
    "Outcome",
    "State",
    "Store",
    "Visit",
]
