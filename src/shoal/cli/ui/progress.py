"""Progress while workers run: a live display on a terminal, otherwise a line or a JSON event every few seconds.

Counts are read from the store once per second. A store that does not respond is shown at once, with the reason and
the time of its last response: its calls are retried for a minute, during which the figures do not change.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Self

from shoal.cli.ui import json_log
from shoal.cli.ui.console import duration, pluralize, report, size
from shoal.cli.ui.rates import Rates
from shoal.cli.ui.summary import rate
from shoal.fleet import Supervisor
from shoal.frontier import Frontier
from shoal.frontier.inspect import PendingHost, pending_hosts
from shoal.model.crawl import Counts, Crawl

if TYPE_CHECKING:
    from shoal.cli.ui.frame import Line

_COUNT_SECONDS = 1.0
_REPORT_SECONDS = 5.0
_PENDING = 5
# The store counts as unavailable if a server does not respond and the figures are older than this.
_STALE_SECONDS, _WATCH_SECONDS = 2.0, 0.25


class Progress:
    """Progress of one crawl, or of all work of these workers if there is no crawl.

    state      the state to display
    resumed    earlier runs worked on the crawl, so figures of this run are marked
    """

    def __init__(
        self, supervisor: Supervisor, *, crawl: Crawl | None = None, where: str = "", resumed: bool = False
    ) -> None:
        self._supervisor = supervisor
        self._crawl = crawl
        self._where = where
        self._resumed = resumed
        self._started_mono = self._counted_mono = self._reported_mono = time.monotonic()
        self._stored: int | None = None
        self._pace = Rates(crawl.id if crawl else "", crawl.limits.max_pages if crawl else 0)
        self._troubles: dict[str, str] = {}
        self._store_watch: asyncio.Task[None] | None = None
        # Why the store is unavailable ('' if it is available), and since when.
        self._store_trouble, self._unavailable_mono = "", 0.0
        self._live_area = None
        if json_log.is_interactive():
            # Loaded only on a terminal.
            from shoal.cli.ui.live import LiveArea

            self._live_area = LiveArea(self._frame)
        self.state = "running"

    def __enter__(self) -> Self:
        if self._live_area is not None:
            self._live_area.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the display."""
        if self._store_watch is not None:
            self._store_watch.cancel()
        if self._live_area is not None:
            self._live_area.stop()

    async def update(self, frontier: Frontier) -> None:
        """Read the counts and report them, if it is time to."""
        now = time.monotonic()
        if now - self._counted_mono < _COUNT_SECONDS and self._pace.counts is not None:
            return
        if self._store_watch is None:
            self._store_watch = asyncio.create_task(self._watch_store(frontier))
        counts = None if self._crawl is None else await frontier.crawls.count(self._crawl.id)
        hosts = await frontier.hosts.waiting(self._crawl.limits.spider if self._crawl else "")
        pending: list[PendingHost] = []
        if self._crawl is not None and counts is not None and (counts.later or hosts[1]):
            pending = await pending_hosts(frontier, self._crawl)
        self._counted_mono = time.monotonic()
        self._store_responds()
        self._pace.note(
            time.monotonic(), self._supervisor.total(), self._supervisor.reports, counts, hosts, pending
        )  # fmt: skip
        if self._live_area is not None or json_log.is_json():
            self._report_troubles()
        if self._live_area is None and now - self._reported_mono >= _REPORT_SECONDS:
            if json_log.is_json():
                self._report_numbers(now)
            elif counts is not None:
                report(self._line(counts, now))
            self._reported_mono = now

    async def _watch_store(self, frontier: Frontier) -> None:
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            now, reason = time.monotonic(), frontier.store_trouble
            if reason and now - self._counted_mono > _STALE_SECONDS and not self._store_trouble:
                self._store_trouble, self._unavailable_mono = reason, self._counted_mono
                json_log.emit(
                    f"The store at {frontier.store_name} is unavailable ({reason}); Shoal retries.",
                    event="store.trouble",
                )

    def _store_responds(self) -> None:
        if self._store_trouble:
            seconds = time.monotonic() - self._unavailable_mono
            self._store_trouble = ""
            report(f"The store responds again, after {duration(seconds)}.", event="store.recovered")

    def _frame(self, columns: int, rows: int, bars: str) -> list[Line]:
        from shoal.cli.ui.frame import Snapshot, frame

        now = time.monotonic()
        view = Snapshot(
            title=self._crawl.id if self._crawl else "shoal worker",
            state=self.state,
            elapsed_seconds=now - self._started_mono,
            pace=self._pace,
            left_seconds=self._pace.left(now),
            where=self._where,
            prefix=self._supervisor.name,
            resumed=self._resumed,
            store_trouble=self._store_trouble,
            unavailable_seconds=now - self._unavailable_mono,
        )
        return frame(view, columns, rows, bars=bars)

    def _line(self, counts: Counts, now: float) -> str:
        total = self._pace.total
        parts = [pluralize(counts.stored, "page")]
        if self._stored is not None:
            # A store that came back with older data has fewer pages than before.
            parts.append(rate(max(0, counts.stored - self._stored) / (now - self._reported_mono)))
        received = size(total.bytes) + (" in this run" if self._resumed else "")
        held, cooling = self._pace.open_hosts, self._pace.hosts[1]
        hosts = (
            f"{pluralize(cooling, 'host')} cooling down" if cooling and not held else f"{pluralize(held, 'host')} open"
        )
        parts += [received, f"{counts.open:,} remaining", hosts]
        if counts.failed:
            parts.append(f"{counts.failed:,} failed")
        if total.retries:
            parts.append("1 retry" if total.retries == 1 else f"{total.retries:,} retries")
        if self._pace.pending:
            from shoal.cli.ui.frame import pending_text

            parts.append(f"waiting for {pending_text(self._pace.pending)}")
        self._stored = counts.stored
        line = f"{duration(now - self._started_mono):>12}  {', '.join(parts)}"
        return f"{line}. {total.trouble}" if total.trouble else line

    def _report_numbers(self, now: float) -> None:
        pace, total, counts = self._pace, self._pace.total, self._pace.counts
        fields: dict[str, object] = {
            "seconds": round(now - self._started_mono, 3), "pages": pace.stored,
            "pages_per_second": round(pace.rate, 3), "bytes": total.bytes, "requests": total.requests,
            "retries": total.retries, "hosts_open": pace.open_hosts,
            "hosts_ready": pace.hosts[0], "hosts_cooling": pace.hosts[1], "hosts_backing_off": total.backing_off,
            "workers": len(self._supervisor.reports), "trouble": total.trouble,
            "limits": {name: round(share, 3) for name, share in pace.limits()},
        }  # fmt: skip
        if self._crawl is None or counts is None:
            report(f"{pluralize(total.pages, 'page')}, {rate(pace.rate)}", event="workers.progress", **fields)
            return
        left = pace.left(now)
        fields |= {
            "crawl": self._crawl.id, "state": self.state, "open": counts.open, "waiting": counts.waiting,
            "leased": counts.leased, "later": counts.later, "failed": counts.failed, "excluded": counts.excluded,
            "left_seconds": None if left is None else round(left, 1), "growing": pace.growing,
            "waiting_for": [
                {"host": host.host, "reason": host.reason, "seconds": round(host.seconds, 1), "retries": host.retries}
                for host in pace.pending[:_PENDING]
            ],
        }  # fmt: skip
        report(
            f"{pluralize(counts.stored, 'page')}, {rate(pace.rate)}, {counts.open:,} remaining",
            event="crawl.progress",
            **fields,
        )

    def _report_troubles(self) -> None:
        """Report each trouble once when it starts: a display only shows the current one."""
        for worker in self._supervisor.reports:
            if worker.trouble != self._troubles.get(worker.worker, ""):
                self._troubles[worker.worker] = worker.trouble
                if worker.trouble:
                    report(f"Worker {worker.worker}: {worker.trouble}", event="worker.trouble", worker=worker.worker)
