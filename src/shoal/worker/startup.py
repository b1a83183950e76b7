"""What a worker process is told at its start: one line of JSON on its standard input, so that no secret is in `ps`."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.errors import SettingsError


class StartupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`settings` are flags for shoal.settings.load; `blame` is where the note of the visit in hand is kept.

    `spiders` are names and references of classes, as FILE.py:Class; `plain`: crawls without a spider are served, too.
    `shared`: a crawl whose output cannot be used is paused, and does not end the worker.
    """

    name: str = ""
    settings: dict[str, Any] = {}
    blame: str = ""
    spiders: dict[str, str] = {}
    plain: bool = True
    shared: bool = False

    def line(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"

    @classmethod
    def of(cls, line: bytes) -> StartupConfig:
        try:
            return msgspec.json.decode(line, type=cls)
        except msgspec.MsgspecError as error:
            raise SettingsError(f"A worker's orders are one line of JSON on its standard input: {error}.") from None
