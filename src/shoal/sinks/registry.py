"""All output technologies, and the one that a URI names.

To add a technology, write a module that exports TECHNOLOGY (contract.py), and add the module to MODULES. A file name
without a scheme is matched against the endings in this order.
"""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any, NamedTuple

from shoal.errors import SinkRefused
from shoal.settings import masked
from shoal.sinks.contract import Location, Technology
from shoal.sinks.driver import check_installed
from shoal.sinks.uri import shown_uri, split_scheme

MODULES = (
    "shoal.sinks.sql.sqlite",
    "shoal.sinks.files.jsonl",
    "shoal.sinks.files.csv",
    "shoal.sinks.files.parquet",
    "shoal.sinks.files.warc",
    "shoal.sinks.sql.postgresql",
    "shoal.sinks.sql.mysql",
    "shoal.sinks.streams.redis",
    "shoal.sinks.streams.kafka",
    "shoal.sinks.streams.amqp",
    "shoal.sinks.iterator",
)
_LOCAL = (Location.FILE, Location.FOLDER)


class ParsedOutput(NamedTuple):
    """An output: its technology, and its address as that technology writes it."""

    technology: Technology[Any]
    address: Path | str

    @property
    def uri(self) -> str:
        return self.technology.uri(self.address)

    @property
    def is_local(self) -> bool:
        """Whether it is a file or folder of this machine."""
        return self.technology.location in _LOCAL

    def check_driver(self) -> None:
        """SinkRefused if a package that it needs is not installed."""
        check_installed(f"The output {masked(str(self.address))}", *self.technology.requirement(self.address))


@functools.cache
def technologies() -> tuple[Technology[Any], ...]:
    return tuple(importlib.import_module(name).TECHNOLOGY for name in MODULES)


def technology_of(uri: str) -> Technology[Any] | None:
    """The technology that a URI names by its scheme, or a file name by its ending; None if there is none."""
    scheme, path = split_scheme(uri)
    if scheme:
        return next((known for known in technologies() if scheme in known.schemes), None) if path else None
    name = uri.lower().rstrip("/")
    return next((known for known in technologies() if known.endings and name.endswith(known.endings)), None)


def parse_output(uri: str) -> ParsedOutput:
    """The output that a URI names; SinkRefused in one sentence if there is none. Opens nothing, imports no driver."""
    if not uri.isprintable():
        raise SinkRefused(f"The name of the output {shown_uri(uri)} contains control characters; choose another name.")
    technology = technology_of(uri)
    if technology is None:
        raise _unsupported(uri)
    return ParsedOutput(technology, technology.parse(uri))


def _unsupported(uri: str) -> SinkRefused:
    endings = ", ".join(ending for known in technologies() for ending in known.endings)
    local = " or ".join(f"{known.name}:" for known in technologies() if known.location in _LOCAL)
    servers = " or ".join(
        f"{known.name}://" for known in technologies() if known.location in (Location.SERVER, Location.STREAM)
    )
    return SinkRefused(
        f"Unsupported output {shown_uri(uri)}; name a file that ends in {endings}, put {local} before it, or give a "
        f"URI that starts with {servers}."
    )
