"""How far workers are, told while they work: a live display on a terminal, else a line or a JSON event now and then.

Counts are read from the store once a second, however many people look.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from shoal.cli.ui import json_log
from shoal.cli.ui.console import counted, duration, say, size
from shoal.cli.ui.rates import Rates
from shoal.cli.ui.summary import rate
from shoal.fleet import Supervisor
from shoal.frontier import Frontier
from shoal.model.crawl import Counts, Crawl

if TYPE_CHECKING:
    from shoal.cli.ui.frame import Line

_LOOK_SECONDS = 1.0
_SAY_SECONDS = 5.0


class Progress:
    """Of one crawl, or of all that these workers do when there is none. `state` is what a person is told.

    `resumed`: some of the crawl was done before, so that what is only of this run is called so.
    """

    def __init__(
        self, supervisor: Supervisor, *, crawl: Crawl | None = None, where: str = "", resumed: bool = False
    ) -> None:
        self._supervisor = supervisor
        self._crawl = crawl
        self._where = where
        self._resumed = resumed
        self._began_mono = self._looked_mono = self._said_mono = time.monotonic()
        self._stored: int | None = None
        self._pace = Rates(crawl.id if crawl else "", crawl.limits.max_pages if crawl else 0)
        self._troubles: dict[str, str] = {}
        self._region = None
        if json_log.may_draw():
            # Loaded where somebody looks, and nowhere else.
            from shoal.cli.ui.live import LiveArea

            self._region = LiveArea(self._frame)
        self.state = "running"

    def __enter__(self) -> Self:
        if self._region is not None:
            self._region.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._region is not None:
            self._region.stop()

    async def look(self, frontier: Frontier) -> None:
        """Count, and tell, if it is time to."""
        now = time.monotonic()
        if now - self._looked_mono < _LOOK_SECONDS and self._pace.counts is not None:
            return
        self._looked_mono = now
        counts = None if self._crawl is None else await frontier.crawls.count(self._crawl.id)
        hosts = await frontier.hosts.waiting(self._crawl.limits.spider if self._crawl else "")
        self._pace.note(
            time.monotonic(), self._supervisor.total(), self._supervisor.reports, counts, hosts
        )  # fmt: skip
        if self._region is not None or json_log.in_json():
            self._tell_troubles()
        if self._region is None and now - self._said_mono >= _SAY_SECONDS:
            if json_log.in_json():
                self._tell_numbers(now)
            elif counts is not None:
                say(self._line(counts, now))
            self._said_mono = now

    def _frame(self, columns: int, rows: int, bars: str) -> list[Line]:
        from shoal.cli.ui.frame import Snapshot, frame

        now = time.monotonic()
        view = Snapshot(
            title=self._crawl.id if self._crawl else "shoal worker",
            state=self.state,
            elapsed_seconds=now - self._began_mono,
            pace=self._pace,
            left_seconds=self._pace.left(now),
            where=self._where,
            prefix=self._supervisor.name,
            resumed=self._resumed,
        )
        return frame(view, columns, rows, bars=bars)

    def _line(self, counts: Counts, now: float) -> str:
        total = self._pace.total
        parts = [counted(counts.stored, "page")]
        if self._stored is not None:
            parts.append(f"{rate((counts.stored - self._stored) / (now - self._said_mono))}")
        received = size(total.bytes) + (" in this run" if self._resumed else "")
        held, cooling = self._pace.open_hosts, self._pace.hosts[1]
        hosts = f"{counted(cooling, 'host')} cooling down" if cooling and not held else f"{counted(held, 'host')} open"
        parts += [received, f"{counts.open:,} to go", hosts]
        if counts.failed:
            parts.append(f"{counts.failed:,} failed")
        if total.retries:
            parts.append("1 retry" if total.retries == 1 else f"{total.retries:,} retries")
        self._stored = counts.stored
        line = f"{duration(now - self._began_mono):>12}  {', '.join(parts)}"
        return f"{line}. {total.trouble}" if total.trouble else line

    def _tell_numbers(self, now: float) -> None:
        pace, total, counts = self._pace, self._pace.total, self._pace.counts
        fields: dict[str, object] = {
            "seconds": round(now - self._began_mono, 3), "pages": pace.stored, "pages_a_second": round(pace.rate, 3),
            "bytes": total.bytes, "requests": total.requests, "retries": total.retries, "hosts_open": pace.open_hosts,
            "hosts_ready": pace.hosts[0], "hosts_cooling": pace.hosts[1], "hosts_backing_off": total.backing_off,
            "workers": len(self._supervisor.reports), "trouble": total.trouble,
            "limits": {name: round(share, 3) for name, share in pace.limits()},
        }  # fmt: skip
        if self._crawl is None or counts is None:
            say(f"{counted(total.pages, 'page')}, {rate(pace.rate)}", event="workers.progress", **fields)
            return
        left = pace.left(now)
        fields |= {
            "crawl": self._crawl.id, "state": self.state, "open": counts.open, "waiting": counts.waiting,
            "leased": counts.leased, "later": counts.later, "failed": counts.failed, "excluded": counts.excluded,
            "left_seconds": None if left is None else round(left, 1), "growing": pace.growing,
        }  # fmt: skip
        say(
            f"{counted(counts.stored, 'page')}, {rate(pace.rate)}, {counts.open:,} to go",
            event="crawl.progress",
            **fields,
        )

    def _tell_troubles(self) -> None:
        """Each once when it begins: a display only shows what is wrong now."""
        for report in self._supervisor.reports:
            if report.trouble != self._troubles.get(report.worker, ""):
                self._troubles[report.worker] = report.trouble
                if report.trouble:
                    say(f"Worker {report.worker}: {report.trouble}", event="worker.trouble", worker=report.worker)
