"""The store: one connection to wherever the frontier lives, embedded, standalone, sentinel or cluster."""

from shoal.store.calls import Argument
from shoal.store.listener import Listener
from shoal.store.routes import SLOTS, slot_of
from shoal.store.script import Script
from shoal.store.store import Store

__all__ = ["SLOTS", "Argument", "Listener", "Script", "Store", "slot_of"]
