"""`-v`: one line for each request of the workers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from shoal.cli.ui.console import report, size

if TYPE_CHECKING:
    from shoal.model.worker_report import RequestLine


def report_request(worker: str, line: RequestLine) -> None:
    """Time, status, bytes, duration and URL. An error replaces the status."""
    at = time.strftime("%H:%M:%S", time.localtime(line.at))
    took = "cached" if line.cached else f"{line.seconds:.3f} s"
    report(
        f"{at}  {line.error or line.status}  {size(line.bytes)}  {took}  {line.url}", event="request", worker=worker,
        url=line.url, status=line.status or None, error=line.error, bytes=line.bytes, seconds=line.seconds,
        cached=line.cached or None,
    )  # fmt: skip
