"""What a user types for an output, and what the documentation says of its columns."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from shoal.errors import SinkRefused
from shoal.sinks import KINDS, check_output, is_local, open_sink
from shoal.sinks.row import COLUMNS
from shoal.sinks.sqlite import DEFINITIONS

RESULTS = Path(__file__).parents[2] / "docs/reference/results.md"


@pytest.mark.parametrize(
    ("typed", "scheme"),
    [
        ("pages.db", "sqlite"),
        ("pages.SQLite", "sqlite"),
        ("pages.sqlite3", "sqlite"),
        ("./pages.jsonl", "jsonl"),
        ("pages.ndjson", "jsonl"),
        ("sqlite:pages", "sqlite"),
        ("JSONL:pages.db", "jsonl"),
        ("sqlite:a ? b # c.txt", "sqlite"),
        ("sqlite::memory:", "sqlite"),
    ],
)
def test_an_output_has_one_full_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, scheme: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / typed.removeprefix("sqlite:").removeprefix("JSONL:")
    assert check_output(typed) == f"{scheme}:{path}"
    assert check_output(check_output(typed)) == check_output(typed)
    assert is_local(check_output(typed))
    assert list(tmp_path.iterdir()) == [], "checking makes nothing"


def test_a_link_and_extra_slashes_lead_to_the_same_spelling(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    expected = f"sqlite:{tmp_path}/real/pages.db"
    assert check_output(f"{tmp_path}/link/pages.db") == expected
    assert check_output(f"sqlite://{tmp_path}/real/pages.db") == expected


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (
            "pages.xyz",
            "No output takes 'pages.xyz'; name a file that ends in .db, .sqlite, .sqlite3, .jsonl, ",
        ),
        ("pages", "No output takes 'pages'; "),
        ("", "No output takes ''; "),
        ("sqlite:", "No output takes 'sqlite:'; "),
        ("cassandra://name:secret@host/db", "No output takes 'cassandra://***@host/db'; "),
        (
            "sqlite://pages.db",
            "'sqlite://pages.db' names a server where a file is meant; write sqlite:PATH.",
        ),
        ("a\x1b[2Jb.db", "The output 'a\\x1b[2Jb.db' has control characters in its name; "),
        ("a\0.db", "The output 'a\\x00.db' has control characters in its name; "),
        ("nowhere/pages.db", "does not exist; make it first."),
        ("loop/pages.db", "cannot be reached"),
        ("pipe.db", "is a device, pipe or socket; name a file."),
        ("x" * 300 + ".db", "cannot be reached: File name too long."),
    ],
)
def test_what_no_sink_takes_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe.db")
    with pytest.raises(SinkRefused) as refused:
        check_output(typed)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.scheme)
def test_every_technology_of_the_table_can_be_opened(tmp_path: Path, kind: tuple[str, ...]) -> None:
    assert open_sink(f"{kind[0]}:{tmp_path / 'pages'}", worker="worker") is not None


def test_the_documentation_names_every_column_and_its_type() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+)( or NULL)?[^|]*\|", RESULTS.read_text(), re.M)
    assert [name for name, _, _ in rows] == list(COLUMNS)
    for name, kind, null in rows:
        definition = DEFINITIONS[name]
        assert definition.split()[0] == kind, name
        assert ("NOT NULL" in definition) == (not null), name
