"""The worker processes of one machine: see `Supervisor`."""

from shoal.fleet.supervisor import Event, Supervisor
from shoal.fleet.totals import Totals
from shoal.fleet.worker_files import Trace, Workplace, living, orders, take_back

__all__ = ["Event", "Supervisor", "Totals", "Trace", "Workplace", "living", "orders", "take_back"]
