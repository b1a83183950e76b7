"""The command `shoal`. Modules are imported when a command needs them: `shoal --help` answers at once."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    from shoal.cli.program import run

    run()
