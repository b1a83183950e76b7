"""The worker processes of one machine: see `Supervisor`."""

from shoal.fleet.health import FleetHealth, serve_health
from shoal.fleet.supervisor import Event, Supervisor
from shoal.fleet.totals import ReportTotals
from shoal.fleet.worker_files import WorkerFiles, WorkerFolder, live_workers, reclaim, startup_settings

__all__ = [
    "Event",
    "FleetHealth",
    "ReportTotals",
    "Supervisor",
    "WorkerFiles",
    "WorkerFolder",
    "live_workers",
    "reclaim",
    "serve_health",
    "startup_settings",
]
