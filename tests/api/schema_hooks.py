"""Hooks of a run of schemathesis, which loads this module: counts status codes, and writes them when the run ends."""

from __future__ import annotations

import atexit
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import schemathesis

COUNTS = "SCHEMA_RUN_COUNTS"
_counts: Counter[int] = Counter()


# The server closes the connection of a request whose head is longer than 64 kB, which the client may see as a reset.
_MAX_QUERY_CHARACTERS = 5000


@schemathesis.hook
def filter_query(context: Any, query: Any) -> bool:
    return len(str(query)) <= _MAX_QUERY_CHARACTERS


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    _counts[response.status_code] += 1


if COUNTS in os.environ:
    atexit.register(lambda: Path(os.environ[COUNTS]).write_text(json.dumps(_counts)))
