"""`shoal resume`."""

from __future__ import annotations

from shoal.cli.options import steering

command = steering("resume", "Let the workers of a store go on with a paused crawl.")
