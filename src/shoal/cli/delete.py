"""`shoal delete`."""

from __future__ import annotations

from shoal.cli.options import steering

command = steering(
    "delete", "Free what an ended crawl holds in the store.",
    "Free all that an ended crawl holds in the store. Its id stays taken, and its pages stay in their outputs.",
)  # fmt: skip
