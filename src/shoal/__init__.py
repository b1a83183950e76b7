"""Shoal crawls the web with any number of machines as if it were one careful visitor."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {"Done": "frontier", "Frontier": "frontier", "Host": "frontier", "Store": "store"}


def __getattr__(name: str) -> Any:
    """Names are imported when they are asked for: `shoal --help` and a supervisor need none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    return getattr(importlib.import_module(f"shoal.{_HOMES.get(name, 'model')}"), name)
