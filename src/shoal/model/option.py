"""One option of a crawl as its field declares it: read out of the annotations of a struct. Knows no option by name."""

from __future__ import annotations

import types
import typing
from collections.abc import Collection
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shoal.model.validation import number, whole


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """The command-line flag of an option. Its type, range and default are those of the field."""

    # The section of `--help`, one of GROUPS. An option in `limits` is an upper bound that a later start can raise; 0
    # and None mean unlimited.
    group: str
    # The flag without its dashes; '' when it is the field's name.
    name: str = ""
    # One more name of the flag, e.g. -a.
    short: str = ""
    # The flag that turns off an option that is on by default; '' when it is the name with `no-` in front.
    off: str = ""
    metavar: str = ""
    # '' when it is the field's description.
    help: str = ""
    # Takes 500k or 1.5mb.
    size: bool = False
    # Takes 90s, 30m, 2h or 1d.
    duration: bool = False
    # Splits NAME and VALUE of an option that is a mapping.
    separator: str = ""
    # One argument may have several values, with commas between them.
    commas: bool = False
    # Whether shells complete its value with file names.
    completes_files: bool = False
    commands: tuple[str, ...] = ("crawl", "submit")
    # Whether an open crawl can get another value, by `shoal change` and the HTTP API.
    changeable: bool = False


class Internal:
    """Marks an option that no request and no flag can set."""


# The order in which `--help` shows flags.
GROUPS = ("output", "crawl", "scope", "limits", "politeness", "requests")
MARKED_INTERNAL = Internal()


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One option, as its field declares it."""

    attribute: str
    # In the HTTP API.
    name: str
    kind: Any
    default: Any
    description: str
    least: float | None
    most: float | None
    internal: bool
    flag: Flag | None
    enforced_by: str

    def check(self, value: Any) -> None:
        """Raise InvalidLimit for a number out of range. Other types have no range."""
        if self.least is None or self.most is None or (value is None and self.default is None):
            return
        if self.kind is int:
            whole(self.name, value, int(self.least), int(self.most))
        else:
            number(self.name, value, self.least, self.most)


def declared(struct: type[msgspec.Struct], *, by_frontier: Collection[str]) -> tuple[Option, ...]:
    """The options that a struct declares or inherits; the frontier enforces those in `by_frontier`."""
    hints = typing.get_type_hints(struct, include_extras=True)
    return tuple(
        _option(
            entry.name, entry.encode_name, hints[entry.name], _default(entry),
            "frontier" if entry.name in by_frontier else "worker",
        )
        for entry in msgspec.structs.fields(struct)
    )  # fmt: skip


def flag_name(option: Option) -> str:
    """A flag without its dashes. An option that is on by default has a flag that turns it off."""
    name = (option.flag.name if option.flag else "") or option.attribute.replace("_", "-")
    if option.default is not True:
        return name
    return (option.flag.off if option.flag else "") or f"no-{name}"


def _option(attribute: str, name: str, hint: Any, default: Any, enforced_by: str) -> Option:
    kind, annotations = _unwrapped(hint)
    meta = [annotation for annotation in annotations if isinstance(annotation, Meta)]
    return Option(
        attribute=attribute, name=name, kind=kind, default=default,
        description=next((each.description for each in meta if each.description), ""),
        least=next((each.ge for each in meta if each.ge is not None), None),
        most=next((each.le for each in meta if each.le is not None), None),
        internal=MARKED_INTERNAL in annotations,
        flag=next((annotation for annotation in annotations if isinstance(annotation, Flag)), None),
        enforced_by=enforced_by,
    )  # fmt: skip


def _default(entry: msgspec.structs.FieldInfo) -> Any:
    return entry.default if entry.default_factory is msgspec.NODEFAULT else entry.default_factory()


def _unwrapped(hint: Any) -> tuple[Any, list[Any]]:
    """A type without its annotations and without None, and all annotations on the way to it."""
    annotations: list[Any] = []
    while True:
        if typing.get_origin(hint) is Annotated:
            hint, *more = typing.get_args(hint)
            annotations += more
        elif isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
            hint = next(member for member in typing.get_args(hint) if member is not type(None))
        else:
            return hint, annotations
