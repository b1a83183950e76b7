"""Drivers of outputs: imported when they are first used, so that a URI can be parsed without its driver.

    if TYPE_CHECKING:
        import asyncpg
    else:
        asyncpg = lazy_import("asyncpg")

`lazy import asyncpg` (PEP 810) takes the place of this module when Python 3.15 is the oldest supported version.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from shoal.errors import SinkRefused


class _LazyModule:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        # The next access finds it here, without the import machinery.
        setattr(self, attribute, value)
        return value


def lazy_import(name: str) -> Any:
    """The module of this name, imported when one of its attributes is first used."""
    return _LazyModule(name)


def check_installed(what: str, package: str, extra: str) -> None:
    """SinkRefused if a package is missing, with the command that installs it. Imports nothing."""
    if package and not _is_installed(package):
        raise SinkRefused(
            f"{what} needs the package {package}, which is not installed; run: pip install 'shoal[{extra}]'."
        )


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False  # the parent of a dotted name is missing
