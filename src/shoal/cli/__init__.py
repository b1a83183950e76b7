"""The command `shoal`. Modules are imported when a command needs them, so `shoal --help` starts fast."""

from __future__ import annotations

import gc
from typing import NoReturn


def start() -> NoReturn:
    # Imported modules stay loaded: collecting garbage among them takes a fifteenth of the startup time.
    gc.set_threshold(50_000)
    from shoal.cli.main import run

    run()
