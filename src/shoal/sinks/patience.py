"""Waiting for an output that is busy, full or away, and saying so now and then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
SAY_EVERY_SECONDS = 60.0


class Hindrance(Exception):
    """An attempt failed in a way that time or a person can heal, and left nothing behind.

    The message goes on after the output's name: "is locked by another program". Within `quiet_seconds` it is nothing
    to speak of.
    """

    def __init__(self, message: str, *, quiet_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.quiet_seconds = quiet_seconds


async def persist(
    output: Path | str, attempt: Callable[[], Awaitable[None]], on_trouble: Callable[[str], None]
) -> None:
    """Attempt it until there is no Hindrance. Cancelling ends the waiting; other errors pass."""
    started = time.monotonic()
    said_at: float | None = None
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            await attempt()
            break
        except Hindrance as hindrance:
            now = time.monotonic()
            lasted = now - started
            if lasted >= hindrance.quiet_seconds and (said_at is None or now - said_at >= SAY_EVERY_SECONDS):
                since = f" for {lasted:.0f} s" if lasted >= 1 else ""
                on_trouble(f"output {output} {hindrance}{since}; waiting")
                said_at = now
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
    if said_at is not None:
        on_trouble("")
