"""The command `shoal`. Modules are imported when a command needs them, so `shoal --help` starts fast."""

from __future__ import annotations

import gc
from typing import NoReturn


def start() -> NoReturn:
    # What is loaded stays: to look for garbage in it takes a fifteenth of the start.
    gc.set_threshold(50_000)
    from shoal.cli.main import run

    run()
