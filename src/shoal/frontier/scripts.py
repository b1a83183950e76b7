"""The Lua scripts as they are sent to the store, and the codes they answer with.

One operation a file; `--include a b` puts in `lua/shared/a.lua` and `b.lua`. Codes and the schema version are written
here once and put in front of every script.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache
from importlib import resources

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


_INCLUDE = re.compile(r"^--include (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


@cache
def script(name: str) -> Script:
    lua = resources.files("shoal.frontier") / "lua"
    source = (lua / f"{name}.lua").read_text()

    def included(match: re.Match[str]) -> str:
        return "\n".join((lua / "shared" / f"{part}.lua").read_text() for part in match[1].split())

    codes = ", ".join(f"{status.name} = {status.value}" for status in Status)
    prelude = f"local S = {{{codes}}}\nlocal SCHEMA = '{SCHEMA}'\n"
    return Script(name, prelude + _COMMENT.sub("", _INCLUDE.sub(included, source)))


def names() -> list[str]:
    lua = resources.files("shoal.frontier") / "lua"
    return sorted(entry.name[:-4] for entry in lua.iterdir() if entry.name.endswith(".lua"))
