"""The store: one connection to the frontier's server or servers: embedded, standalone, Sentinel or cluster."""

from shoal.store.pipeline import Argument, Script
from shoal.store.pubsub import Subscriber
from shoal.store.slot_map import SLOTS, slot_of
from shoal.store.store import Store

__all__ = ["SLOTS", "Argument", "Script", "Store", "Subscriber", "slot_of"]
