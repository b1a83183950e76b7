"""How many visits a lease has at most.

A lease has fewer visits if more would not fit into `frontier.batch_seconds`; lease.lua and renew.lua decide that.
"""

from __future__ import annotations

# The maximum in a lease of a worker, and of a Scrapy process.
MOST_VISITS = 64
SCRAPY_VISITS = 32
# A worker tops up a lease with fewer than FEW_VISITS left to TOPPED_UP_VISITS, so that a fast host never waits.
FEW_VISITS = 8
TOPPED_UP_VISITS = 128
