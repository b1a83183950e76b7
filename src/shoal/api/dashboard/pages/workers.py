"""Workers: which are alive, what each does, and which have stopped responding; and the servers of the store."""

from __future__ import annotations

from shoal.api.dashboard.components import bar, duration, empty, number, rate, size, table, timestamp
from shoal.api.dashboard.fleet import LATE_SECONDS, FleetView, LostWorker
from shoal.api.dashboard.html import E, Node
from shoal.api.dashboard.view import DashboardPage, View, live
from shoal.api.fleet_stats import WorkerView

_COLUMNS = (
    ">Worker", "=State", ">Machine", "#PID", "=Version", "Spiders", "#Pages", "#Pages/s", "#Received/s", "#CPU",
    "#Memory", "#Hosts leased", "#Leases lost", "=Limited by",
)  # fmt: skip


async def workers_page(view: View) -> DashboardPage:
    fleet = await view.fleet.read()
    content = [
        E.h1("Workers"),
        live("workers", _workers(fleet)),
        E.h2("Store", id="store"),
        live("store", _store(fleet)),
    ]
    return DashboardPage("Workers", content, "Workers")


def _workers(fleet: FleetView) -> Node:
    if not fleet.workers and not fleet.lost:
        return empty("No worker is alive. Start some on any machine with ", E.code("shoal worker --store URL"), ".")
    rows = [_lost(lost) for lost in fleet.lost] + [_worker(worker) for worker in fleet.workers]
    return table("Workers", _COLUMNS, rows)


def _worker(worker: WorkerView) -> list[Node]:
    late = worker.seen_seconds_ago > LATE_SECONDS
    seen = E.span(f"silent for {worker.seen_seconds_ago:.0f} s", class_="state late") if late else _alive()
    spiders = ", ".join(spider or "none" for spider in worker.spiders)
    cpu = worker.cpu_seconds / worker.alive_seconds if worker.alive_seconds else 0.0
    return [
        worker.name, seen, worker.machine, str(worker.pid), worker.version, spiders, number(worker.pages),
        rate(worker.pages_per_second), size(worker.bytes_per_second), f"{cpu:.0%}", size(worker.memory_bytes),
        number(worker.open_hosts), number(worker.leases_lost), limited_by([worker]),
    ]  # fmt: skip


def _alive() -> Node:
    return E.span("alive", class_="state running")


def _lost(lost: LostWorker) -> list[Node]:
    worker = lost.worker
    return [
        worker.name, [E.span("lost", class_="state lost"), " last seen ", timestamp(lost.seen_at, "relative")],
        worker.machine, str(worker.pid), worker.version, "", number(worker.pages), "", "", "", "", "", "", "",
    ]  # fmt: skip


def limited_by(workers: list[WorkerView]) -> str:
    """The cause that took most of the workers' time, and its share."""
    alive = sum(worker.alive_seconds for worker in workers)
    if not alive:
        return "–"
    spent = {
        "politeness or idle": sum(worker.politeness_seconds for worker in workers),
        "network": sum(worker.network_seconds for worker in workers),
        "output": sum(worker.sink_seconds for worker in workers),
        "store": sum(worker.store_seconds for worker in workers),
        "CPU": sum(worker.cpu_seconds for worker in workers),
    }
    name, seconds = max(spent.items(), key=lambda item: item[1])
    return f"{name} {min(1.0, seconds / alive):.0%}"


def _store(fleet: FleetView) -> Node:
    rows: list[list[Node]] = [
        [
            node.server, size(node.used_bytes), size(node.limit_bytes) if node.limit_bytes else "none",
            bar(node.used_bytes, node.limit_bytes, "used") if node.limit_bytes else "",
        ]
        for node in fleet.memory
    ]  # fmt: skip
    oldest = fleet.stats.lease_age_seconds
    return [
        table("Servers of the store", (">Server", "#Memory used", "#Limit", "Share"), rows),
        E.p(f"The oldest lease was renewed {duration(oldest)} ago.", class_="quiet") if oldest else None,
    ]
