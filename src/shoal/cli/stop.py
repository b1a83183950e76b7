"""`shoal stop`."""

from __future__ import annotations

from shoal.cli.options import steering

command = steering("stop", "Stop a crawl for good.")
