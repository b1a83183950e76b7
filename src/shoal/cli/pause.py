"""`shoal pause`."""

from __future__ import annotations

from shoal.cli.options import steering

command = steering("pause", "Pause a crawl; nothing of it is lost.")
