"""docs/words.py finds phrases in strings, comments, names of tests and pages, and ignores code."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("words", ROOT / "docs/words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def hits(words: ModuleType, name: str, text: str) -> list[str]:
    path = words.ROOT / name
    path.write_text(text)
    return list(words.hits(path))


def test_a_phrase_in_a_string_a_docstring_or_a_comment_is_found(words: ModuleType) -> None:
    text = '"""The store is away."""\n\nx = f"{1} goes on"  # Is told later.\n'
    assert hits(words, "a.py", text) == [
        'a.py:1: "is away": unavailable, down',
        'a.py:3: "goes on": resume, continue',
        'a.py:3: "Is told": report, log, emit, inform',
    ]


def test_a_phrase_over_two_lines_is_found_where_it_begins(words: ModuleType) -> None:
    assert hits(words, "a.md", "# Page\n\nThe store\nis\naway.\n") == ['a.md:4: "is away": unavailable, down']
    assert hits(words, "a.py", "x = 1\n# The store is\n# away.\n") == ['a.py:2: "is away": unavailable, down']


def test_code_is_not_prose(words: ModuleType) -> None:
    assert hits(words, "a.py", "import asyncio\n\ngather = asyncio.gather\n") == []
    assert hits(words, "a.lua", "local reckon = 1 -- a count\n") == []
    assert hits(words, "a.md", "`test_a_store_is_away`, `is away`, and there is no other.\n") == []


def test_a_phrase_in_the_name_of_a_test_is_found(words: ModuleType) -> None:
    text = "def test_a_store_is_away() -> None: ...\n\n\nasync def test_it_goes_on() -> None: ...\n"
    assert hits(words, "a.py", text) == [
        'a.py:1: "is away": unavailable, down',
        'a.py:4: "goes on": resume, continue',
    ]
    assert hits(words, "a.py", "def is_away() -> None: ...\n\n\ntest_is_away = 1\n") == []


def test_files_of_tests_benchmarks_tools_examples_and_deployment_are_read(words: ModuleType) -> None:
    names = ["bench/a.py", "deploy/a/b.yaml", "examples/a.md", "src/shoal/a.py", "tests/unit/a.py", "tools/a.py"]
    for name in names:
        path = words.ROOT / name
        path.parent.mkdir(parents=True)
        path.write_text("# It goes on.\n")
    assert [path.relative_to(words.ROOT).as_posix() for path in words.sources()] == names
    assert len([hit for path in words.sources() for hit in words.hits(path)]) == len(names)


def test_an_allowed_phrase_is_not_reported(words: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "ALLOWED", {("a.md", "a title"): "quoted"})
    assert hits(words, "a.md", "It goes on, a title.\n\nIt goes on.\n") == ['a.md:3: "goes on": resume, continue']
