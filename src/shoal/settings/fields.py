"""A setting: its name, type, range and description, and how a value is shown without secrets."""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar, NamedTuple, get_args

import msgspec

from shoal.errors import SettingsError
from shoal.settings.secrets import masked

PREFIX = "SHOAL_"


def shown(value: object) -> str:
    text = masked(value) if isinstance(value, str) else masked(repr(value))
    text = text if len(text) <= 200 else text[:200] + "..."
    return repr(text) if isinstance(value, str) else text


class Field(NamedTuple):
    """One setting: its name, its kind and its meaning, for code that loads, checks or documents it."""

    section: str
    name: str
    kind: Any
    default: object
    description: str
    expects: str

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        return f"{PREFIX}{self.section}_{self.name}".upper()

    def accept(self, value: object, where: str, *, text: bool = False) -> Any:
        """Convert `value` to this setting's type. `text`: it was given as a string, whatever the setting's type is."""
        try:
            accepted = msgspec.convert(value, self.kind, strict=not text)
        except msgspec.ValidationError:
            accepted = None
        # NaN passes every comparison, and a control character in a path or URL is always a mistake.
        unusable = isinstance(accepted, float) and not math.isfinite(accepted)
        unusable = unusable or (isinstance(accepted, str) and any(ord(c) < 32 or ord(c) == 127 for c in accepted))
        if accepted is None or unusable:
            raise SettingsError(f"{self.key} is {shown(value)} {where}, but must be {self.expects}.")
        return accepted


@functools.cache
def fields_of(section: type[Section]) -> tuple[Field, ...]:
    """The settings of one section, in the order in which they are written."""
    fields = []
    for info in msgspec.structs.fields(section):
        plain, meta = get_args(info.type)
        if plain is str:
            expects = meta.extra["expects"]
        else:
            expects = f"a {'whole ' if plain is int else ''}number from {meta.ge} to {meta.le}"
        fields.append(Field(section.section, info.name, info.type, info.default, meta.description, expects))
    return tuple(fields)


class Section(msgspec.Struct, frozen=True):
    """A table of shoal.toml. It checks itself, so a section built in code is as valid as one that was loaded."""

    section: ClassVar[str]

    def __post_init__(self) -> None:
        for field in fields_of(type(self)):
            field.accept(getattr(self, field.name), "in the code")

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={shown(getattr(self, name))}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({values})"
