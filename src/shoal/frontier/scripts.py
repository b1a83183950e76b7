"""The Lua scripts as they are sent to the store, and the status codes of their replies.

Each operation is one file; `--include a b` inserts `lua/include/a.lua` and `b.lua`. Status codes and the schema version
are defined here once and prepended to every script.

A server runs the whole text of a script at every call. So a script is sent only with the functions and the fields of
`meta` that it uses. The code after `shard` is wrapped in a function: a closure copies the variables of outer functions,
but searches for those of the function that creates it, one by one (luaF_findupval). In `add`, which runs most often,
this saves a fifth of the cost of a call before it reads its visits.
"""

from __future__ import annotations

import re
from collections import Counter
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
# Functions of the outermost level, on one line or up to an `end` at the start of a line.
_FUNCTION = re.compile(r"^local function (\w+)\((?:[^\n]* end\n|.*?^end\n)", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"\w+")
_META_FIELD = re.compile(r"\bMETA\.(\w+)")
_INNER = ("return (function()\n", "end)()\n")
_LUA = Path(__file__).parent / "lua"
_CODES = ", ".join(f"{status.name} = {status.value}" for status in Status)
_PRELUDE = f"local S = {{{_CODES}}}\nlocal SCHEMA = '{SCHEMA}'\n"


@cache
def script(name: str) -> Script:
    def included(match: re.Match[str]) -> str:
        return "\n".join(_source(f"include/{part}") + _INNER[0] * (part == "shard") for part in match[1].split())

    source = _COMMENT.sub("", _INCLUDE.sub(included, _source(name)))
    if _INNER[0] in source:
        source += _INNER[1]
    return Script(name, _PRELUDE + _with_fields(_without_unused(source)))


def _without_unused(source: str) -> str:
    """The source without functions that nothing mentions: each takes time and memory at every call."""
    mentions = Counter(_WORD.findall(source))
    # A function is defined before those that call it: from the last to the first.
    for function in reversed(list(_FUNCTION.finditer(source))):
        if mentions[function[1]] == 1:
            mentions.subtract(_WORD.findall(function[0]))
            source = source[: function.start()] + source[function.end() :]
    return source


def _with_fields(source: str) -> str:
    """The source with the names of the fields of `meta` that it mentions, and their positions in the reply."""
    fields = list(dict.fromkeys(_META_FIELD.findall(source)))
    source = _META_FIELD.sub(lambda field: f"META[{fields.index(field[1]) + 1}]", source)
    return source.replace("KEYS[1], FIELDS)", f"KEYS[1], {', '.join(map(repr, fields))})")


@cache
def _source(name: str) -> str:
    return (_LUA / f"{name}.lua").read_text()


def names() -> list[str]:
    return sorted(path.stem for path in _LUA.glob("*.lua"))
