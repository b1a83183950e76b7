"""Shoal is a distributed web crawler: any number of machines behave like one polite visitor."""

import importlib
from typing import TYPE_CHECKING, Any

from shoal.version import __version__ as __version__

if TYPE_CHECKING:
    from shoal.client import AsyncClient, Client
    from shoal.frontier import Done, Frontier, Host
    from shoal.model import Added, Counts, Crawl, Item, Lease, Limits, Outcome, Record, State, Visit
    from shoal.python.coordinator import Coordinator
    from shoal.python.crawl import crawl
    from shoal.spider import Follow, Page, Spider
    from shoal.store import Store

__all__ = [
    "Added",
    "AsyncClient",
    "Client",
    "Coordinator",
    "Counts",
    "Crawl",
    "Done",
    "Follow",
    "Frontier",
    "Host",
    "Item",
    "Lease",
    "Limits",
    "Outcome",
    "Page",
    "Record",
    "Spider",
    "State",
    "Store",
    "Visit",
    "crawl",
]

# The modules of names; all other names are in shoal.model.
_MODULES = {
    "AsyncClient": "client", "Client": "client",
    "Coordinator": "python.coordinator", "Done": "frontier", "Follow": "spider",
    "Frontier": "frontier", "Host": "frontier", "Page": "spider", "Spider": "spider", "Store": "store",
    "crawl": "python.crawl",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Names are imported on first use: `shoal --help` and a supervisor need none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    return getattr(importlib.import_module(f"shoal.{_MODULES.get(name, 'model')}"), name)
