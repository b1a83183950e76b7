"""The checks of docs/generate.py find every planted error, and the repository passes them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """docs/generate.py. It parses the sources once."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def generate(generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The generator, at work on a small copy of the repository."""
    pages = generator.GENERATED
    for page in pages:
        copy = tmp_path / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        # Only what is generated links to what is here.
        copy.write_text(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page.read_text()))
    (tmp_path / "README.md").write_text("# Copy\n")
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    monkeypatch.setattr(generator, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(generator, "GENERATED", {tmp_path / page.relative_to(ROOT): pages[page] for page in pages})
    assert generator.main([]) == 0
    assert list(generator.problems()) == []
    return generator


def test_an_outdated_page_is_reported(generate: ModuleType) -> None:
    page = generate.DOCS / "reference/settings.md"
    page.write_text(page.read_text().replace("a whole number from 1 to 1024", "any number"))
    assert list(generate.problems()) == ["docs/reference/settings.md: out of date; run `make docs`"]


def test_a_new_page_must_be_in_the_index_and_generating_adds_it(generate: ModuleType) -> None:
    page = generate.DOCS / "concepts/lease.md"
    page.parent.mkdir()
    page.write_text("# Leases\n\nA [lease](x.md) is a right\nthat ends. It has a token.\n")
    assert any("concepts/lease.md: not linked" in problem for problem in generate.problems())
    assert generate.main([]) == 0
    assert "- [Leases](concepts/lease.md): A lease is a right that ends.\n" in (generate.DOCS / "README.md").read_text()


@pytest.mark.parametrize("text", ["", "# Only a heading\n", "No heading.\n", "# Heading\n\n| a | table |\n"])
def test_a_page_without_a_heading_and_a_sentence_is_reported(generate: ModuleType, text: str) -> None:
    page = generate.DOCS / "guides/empty.md"
    page.parent.mkdir()
    page.write_text(text)
    assert any("begin with a '# heading'" in problem for problem in generate.problems())


@pytest.mark.parametrize("target", ["docs/nowhere.md", "docs/README.md#no-such-heading", "#nor-this-one"])
def test_a_dead_link_is_reported(generate: ModuleType, target: str) -> None:
    (generate.ROOT / "README.md").write_text(f"# Copy\n\nSee [there]({target}).\n")
    assert [p for p in generate.problems() if f"README.md: the link {target}" in p]


def test_a_link_to_an_existing_heading_is_valid(generate: ModuleType) -> None:
    (generate.ROOT / "README.md").write_text(
        "# A copy\n\n[here](#a-copy) [index](docs/README.md#shoals-documentation)\n"
    )
    assert list(generate.problems()) == []


# The star keeps these lines from being found themselves.
@pytest.mark.parametrize(
    "text", ["see /wo*rk/main", "in /ro*ot/.cache", "cd /ho*me/me/x", "from https://py*pi.org/simple"]
)
def test_a_local_path_or_private_registry_is_reported(generate: ModuleType, text: str) -> None:
    (generate.ROOT / "README.md").write_text(f"# Copy\n\n{text.replace('*', '')}\n")
    assert [problem for problem in generate.problems() if problem.startswith("README.md:3: contains ")]


def test_a_lock_file_that_names_an_index_is_reported(generate: ModuleType) -> None:
    (generate.ROOT / "requirements").mkdir()
    lock = generate.ROOT / "requirements/run.txt"
    lock.write_text("--index-url simple\nmsgspec==1\n")
    assert [problem for problem in generate.problems() if "requirements/run.txt" in problem]
    lock.write_text(f"msgspec==1 \\\n    --hash=sha256:{'0' * 64}\n    # via shoal (pyproject.toml)\n")
    assert list(generate.problems()) == []


def test_a_lock_file_with_a_version_without_a_hash_is_reported(generate: ModuleType) -> None:
    (generate.ROOT / "requirements").mkdir()
    (generate.ROOT / "requirements/run.txt").write_text(
        f"click==8 ; python_version < '3.14'\n    # via shoal\nmsgspec==1 \\\n    --hash=sha256:{'0' * 64}\n"
    )
    assert list(generate.problems()) == ["requirements/run.txt: click==8 has no hash; run `make lock`"]


def test_an_error_that_is_missing_from_the_tree_is_reported(
    generate: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    undrawn = re.sub(r"(?m)^.*LeaseLost.*\n", "", generate.errors.__doc__)
    monkeypatch.setattr(generate.errors, "__doc__", undrawn)
    assert "src/shoal/errors.py: LeaseLost is not drawn in the tree" in list(generate.problems())


@pytest.mark.parametrize(
    "event",
    [
        "crawl.ended",
        "host.changed",
        "crawl.retried",
        "crawl.expired",
        "notify.sent",
        "crawl.trouble",
        "listen.recovered",
    ],
)
def test_an_event_that_is_missing_from_the_tables_is_reported(
    generate: ModuleType, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """From any source: a command, the API, an action, a maintainer, a bridge."""
    from shoal.operations import events

    monkeypatch.delitem(events.EVENTS, event)
    assert f"src/shoal/operations/events.py: the event {event} is not in EVENTS" in list(generate.problems())


def test_documented_fields_of_events_match_the_code(generate: ModuleType) -> None:
    fields = generate.event_fields()
    assert {"crawl", "state", "failed_by_reason", "outputs"} <= set(fields["crawl.ended"])
    assert "left_seconds" in fields["crawl.progress"]
    assert "left_seconds" not in fields["workers.progress"]
    assert fields["worker.died"] == ["worker", "crawl"]
