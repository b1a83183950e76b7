"""How users name an output, and the documentation of its columns."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.errors import SinkRefused
from shoal.model.record import Capture, Item, Record
from shoal.sinks import check_output, has_parts, is_local, open_sink, takes
from shoal.sinks.columns import COLUMNS, ITEM_COLUMNS
from shoal.sinks.contract import Location
from shoal.sinks.files.compression import ZSTD_MODULE
from shoal.sinks.registry import technologies
from shoal.sinks.sql.sqlite import DEFINITIONS, ITEM_DEFINITIONS

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
        ("pages.jsonl.GZ", "jsonl"),
        ("pages.ndjson.zst", "jsonl"),
        ("pages.csv.gz", "csv"),
        ("pages.parquet", "parquet"),
        ("pages.parquet/", "parquet"),
        ("sqlite:a ? b # c.txt", "sqlite"),
        ("sqlite::memory:", "sqlite"),
    ],
)
def test_an_output_has_one_canonical_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, scheme: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / typed.removeprefix("sqlite:").removeprefix("JSONL:").removesuffix("/")
    assert check_output(typed) == f"{scheme}:{path}"
    assert check_output(check_output(typed)) == check_output(typed)
    assert is_local(check_output(typed))
    assert list(tmp_path.iterdir()) == [], "checking makes nothing"


@pytest.mark.parametrize(
    ("typed", "full"),
    [
        ("postgresql://u:p@h/db", "postgresql://u:p@h/db?table=pages"),
        ("Postgres://u@h:1/db?table=a.b&sslmode=require", "postgresql://u@h:1/db?table=a.b&sslmode=require"),
        ("mariadb://u:p%40@[::1]:3307/a%20b?table=books", "mysql://u:p%40@[::1]:3307/a%20b?table=books"),
        ("mysql://u@h/db?table_per_spider", "mysql://u@h/db?table=pages&table_per_spider=yes"),
        ("mysql:///db?socket=/run/mysqld/mysqld.sock", "mysql:///db?table=pages&socket=%2Frun%2Fmysqld%2Fmysqld.sock"),
    ],
)
def test_a_table_of_a_server_has_one_canonical_form_and_is_not_local(typed: str, full: str) -> None:
    assert check_output(typed) == full
    assert check_output(full) == full
    assert not is_local(full)


@pytest.mark.parametrize(
    ("typed", "package", "extra"),
    [
        ("postgresql://u:secret@h/db", "asyncpg", "postgresql"),
        ("mysql://u:secret@h/db", "asyncmy", "mysql"),
        ("pages.parquet", "pyarrow", "parquet"),
        ("pages.jsonl.zst", ZSTD_MODULE, "zstd"),
    ],
)
def test_a_missing_package_is_reported_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch, typed: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for use in (check_output, lambda uri: open_sink(uri, worker="worker")):
        with pytest.raises(SinkRefused) as refused:
            use(typed)
        assert str(refused.value).endswith(
            f"needs the package {package}, which is not installed; run: pip install 'shoal[{extra}]'."
        )
        assert "secret" not in str(refused.value)


def test_unmerged_parts_are_detected(tmp_path: Path) -> None:
    assert not has_parts(str(tmp_path / "pages.csv"))
    (tmp_path / "pages.csv.parts").mkdir()
    assert has_parts(str(tmp_path / "pages.csv"))
    assert not has_parts("mysql://u@h/db")


@pytest.mark.parametrize(
    ("uri", "without", "with_spider"),
    [
        ("pages.db", (Record, Item), (Record, Item)),
        ("postgresql://u@h/db", (Record, Item), (Record, Item)),
        ("mysql://u@h/db?table_per_spider", (Record, Item), (Record, Item)),
        ("pages.jsonl.gz", (Record,), (Item,)),
        ("pages.csv", (Record,), (Item,)),
        ("pages.parquet", (Record,), (Item,)),
        ("warc:archive", (Capture,), (Capture,)),
    ],
)
def test_an_output_states_which_records_it_accepts(
    uri: str, without: tuple[type, ...], with_spider: tuple[type, ...]
) -> None:
    assert takes(uri, spider=False) == without
    assert takes(uri, spider=True) == with_spider


def test_a_symbolic_link_and_extra_slashes_have_the_same_canonical_form(tmp_path: Path) -> None:
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
            "Unsupported output 'pages.xyz'; name a file that ends in .db, .sqlite, .sqlite3, .jsonl, ",
        ),
        ("pages", "Unsupported output 'pages'; "),
        ("", "Unsupported output ''; "),
        ("sqlite:", "Unsupported output 'sqlite:'; "),
        ("cassandra://name:secret@host/db", "Unsupported output 'cassandra://***@host/db'; "),
        (
            "sqlite://pages.db",
            "'sqlite://pages.db' names a server, not a file; write sqlite:PATH.",
        ),
        ("a\x1b[2Jb.db", "The name of the output 'a\\x1b[2Jb.db' contains control characters; "),
        ("a\0.db", "The name of the output 'a\\x00.db' contains control characters; "),
        ("nowhere/pages.db", "does not exist; create it first."),
        ("loop/pages.db", "cannot be reached"),
        ("pipe.db", "is a device, pipe or socket; name a file."),
        ("x" * 300 + ".db", "cannot be reached: File name too long."),
        ("cassandra://" + "x" * 300 + ":secret@host/db", "Unsupported output 'cassandra://***@host/db'; "),
        ("postgresql://name:secret@host", "'postgresql://***@host' does not name a database; write postgresql://USER:"),
        (
            "mysql://name:sec#secret@host/db",
            "'mysql://***@host/db' is not a valid address of a database; write mysql://",
        ),
        (
            "mysql://name:secret@host:port/db",
            "is not a valid address of a database; write mysql://USER:PASSWORD@HOST/DATABASE?",
        ),
        ("mysql://name:a/secret@host/db", "'mysql://***@host/db' is not a valid address of a database; "),
        ("mysql://name:secret@host/db?table=a'b", "has an invalid table name; use letters, digits and _."),
        ("mysql://name:secret@host/db?table=a.b", "has an invalid table name; use letters, digits and _."),
        ("postgresql:db", "'postgresql:db' does not name a database; "),
        (
            "mysql://name:secret@host/db?table_per_spider=no",
            "has a value for the option table_per_spider; omit the value.",
        ),
    ],
)
def test_an_output_without_a_sink_is_refused_in_one_sentence(
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


@pytest.mark.parametrize(
    ("scheme", "location"),
    [
        (scheme, technology.location)
        for technology in technologies()
        for scheme in technology.schemes
        if technology.location is not Location.CALLER
    ],
)
def test_every_technology_of_the_registry_can_be_opened(tmp_path: Path, scheme: str, location: Location) -> None:
    where = tmp_path / "pages" if location in (Location.FILE, Location.FOLDER) else "//127.0.0.1/0/pages"
    if location is Location.SERVER or scheme == "kafka":
        where = "//127.0.0.1/pages"
    assert open_sink(f"{scheme}:{where}", worker="worker") is not None


def test_no_driver_is_imported_to_parse_a_uri() -> None:
    program = (
        "import sys\nfrom shoal.sinks.registry import technologies\n"
        "drivers = [known.driver for known in technologies() if known.driver]\n"
        "print(len(drivers), *(driver for driver in drivers if driver in sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "5\n"


@pytest.mark.parametrize(
    ("section", "columns", "definitions"),
    [("Columns", COLUMNS, DEFINITIONS), ("Items", ITEM_COLUMNS, ITEM_DEFINITIONS)],
)
def test_the_documentation_names_every_column_and_its_type(
    section: str, columns: tuple[str, ...], definitions: dict[str, str]
) -> None:
    text = RESULTS.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0].split("\n### Items in files")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+)( or NULL)?[^|]*\|", text, re.M)
    assert [name for name, _, _ in rows] == list(columns)
    for name, kind, null in rows:
        definition = definitions[name]
        assert definition.split()[0] == kind, name
        assert ("NOT NULL" in definition) == (not null), name
