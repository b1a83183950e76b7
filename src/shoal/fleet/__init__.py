"""The worker processes of one machine: see `Supervisor`."""

from shoal.fleet.leftovers import Trace, living, take_back
from shoal.fleet.supervisor import Event, Supervisor
from shoal.fleet.totals import Totals
from shoal.fleet.workplace import Workplace, orders

__all__ = ["Event", "Supervisor", "Totals", "Trace", "Workplace", "living", "orders", "take_back"]
