"""The Lua scripts as they are sent to the store, and the codes they answer with.

One operation a file; `--include a b` puts in `lua/include/a.lua` and `b.lua`. Codes and the schema version are written
here once and put in front of every script.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache
from pathlib import Path

from shoal.store import Script

SCHEMA = "1"


class Status(IntEnum):
    OK = 0
    ABSENT = 1
    SCHEMA = 2
    INVALID = 3
    HELD = 4
    EPOCH = 5
    CLOCK = 6
    UNKNOWN = 7
    EXISTS = 8
    ENDED = 9
    RUNNING = 10
    LOST = 11
    REPLACED = 12


_INCLUDE = re.compile(r"^--include (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_LUA = Path(__file__).parent / "lua"
_CODES = ", ".join(f"{status.name} = {status.value}" for status in Status)
_PRELUDE = f"local S = {{{_CODES}}}\nlocal SCHEMA = '{SCHEMA}'\n"


@cache
def script(name: str) -> Script:
    def included(match: re.Match[str]) -> str:
        return "\n".join(_source(f"include/{part}") for part in match[1].split())

    return Script(name, _PRELUDE + _COMMENT.sub("", _INCLUDE.sub(included, _source(name))))


@cache
def _source(name: str) -> str:
    return (_LUA / f"{name}.lua").read_text()


def names() -> list[str]:
    return sorted(path.stem for path in _LUA.glob("*.lua"))
