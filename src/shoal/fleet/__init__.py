"""The worker processes of one machine: see `Supervisor`."""

from shoal.fleet.leftovers import living, take_back
from shoal.fleet.supervisor import Event, Supervisor
from shoal.fleet.totals import Totals

__all__ = ["Event", "Supervisor", "Totals", "living", "take_back"]
