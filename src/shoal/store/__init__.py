"""The store: one connection to wherever the frontier lives, embedded, standalone, sentinel or cluster."""

from shoal.store.pipeline import Argument, Script
from shoal.store.pubsub import Listener
from shoal.store.store import Store
from shoal.store.topology import SLOTS, slot_of

__all__ = ["SLOTS", "Argument", "Listener", "Script", "Store", "slot_of"]
