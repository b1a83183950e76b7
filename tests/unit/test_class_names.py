"""A class name stands for one thing: a search for it finds one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import shoal


def test_a_class_name_is_used_once_in_the_package() -> None:
    package = Path(shoal.__file__).parent
    files = defaultdict(list)
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(str(path.relative_to(package)))
    assert {name: where for name, where in files.items() if len(where) > 1} == {}
