"""Check that only `shoal.frontier` and `shoal.store` access raw keys of the store. Part of `make check`.

Other packages use `shoal.frontier.inspect` or a method of the frontier. Prints one line per violation.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "shoal"
ALLOWED = ("frontier", "store")
RAW = {"store", "prefixes", "command", "call", "call_all"}
MODULES = {"shoal.frontier.keys"}


def violations(source: str) -> Iterator[tuple[int, str]]:
    """The numbers of lines that access raw keys, each with a description of the access."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(attr=attr, value=ast.Attribute(attr="shards" | "_shards")) if attr in RAW:
                yield node.lineno, f"uses shards.{attr}"
            case ast.ImportFrom(module=str(module), names=names):
                imported = {module, *(f"{module}.{name.name}" for name in names)}
                for name in sorted(imported & MODULES):
                    yield node.lineno, f"imports {name}"
            case ast.Import(names=names):
                for alias in names:
                    if alias.name in MODULES:
                        yield node.lineno, f"imports {alias.name}"


def main() -> int:
    count = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE)
        if module.parts[0] not in ALLOWED:
            for line, access in violations(path.read_text()):
                count += 1
                print(f"{path}:{line}: {access}; use shoal.frontier.inspect or a method of the frontier")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
