"""The start-up message of a worker process: one line of JSON on stdin, so that no secret shows up in `ps`."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.errors import SettingsError

# The exit code of a worker that cannot work, e.g. with these settings: the supervisor does not restart it.
CANNOT_WORK = 3


class StartupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker process needs to start.

    settings      flags for shoal.settings.load
    crash_marker  path of the file that names the visit being parsed
    spiders       names and references of classes, e.g. FILE.py:Class
    plain         also serve crawls without a spider
    shared        pause a crawl whose output rejects records, instead of stopping the worker
    log_requests  write a line about each request, beside the reports
    """

    name: str = ""
    settings: dict[str, Any] = {}
    crash_marker: str = ""
    spiders: dict[str, str] = {}
    plain: bool = True
    shared: bool = False
    log_requests: bool = False

    def line(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"

    @classmethod
    def of(cls, line: bytes) -> StartupConfig:
        try:
            return msgspec.json.decode(line, type=cls)
        except msgspec.MsgspecError as error:
            raise SettingsError(f"Invalid start-up message: send one line of JSON on stdin ({error}).") from None
