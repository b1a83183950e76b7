"""The options of a crawl as a list, from which flags, forms, schemas and documentation are derived.

`Limits`, `CrawlSpec` and `CrawlRequest` declare them.
"""

from __future__ import annotations

from collections.abc import Iterator

from shoal.model.crawl_spec import CrawlSpec
from shoal.model.limits import Limits, options_of
from shoal.model.option import GROUPS, Flag, Option, flag_name


def options(struct: type[Limits] = CrawlSpec) -> tuple[Option, ...]:
    """All options that a class declares or inherits."""
    return options_of(struct)


def flags(command: str) -> Iterator[tuple[Option, Flag]]:
    """The options that have a flag of this command, in the order of `--help`."""
    declared = [
        (option, option.flag)
        for option in options()
        if option.flag and (option.flag.changeable if command == "change" else command in option.flag.commands)
    ]
    return iter(sorted(declared, key=lambda pair: GROUPS.index(pair[1].group)))


def flag_of(attribute: str) -> str:
    """The flag of an option, by the name of its field."""
    for option in options():
        if option.attribute == attribute:
            return f"--{flag_name(option)}"
    return f"--{attribute.replace('_', '-')}"


# Options that an open crawl can change, by their attributes.
CHANGEABLE = tuple(option.attribute for option in options() if option.flag and option.flag.changeable)
INTERNAL = frozenset(option.name for option in options() if option.internal)
