"""The difference of two versions of a page."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shoal.worker import versions
from shoal.worker.versions import difference
from tests.servers import program

CASES = [
    ("a\nb\nc", "a\nB\nc"), ("", "a\nb"), ("a\nb", ""),
    ("a\nb\nc\nd\ne\nf\ng\nh\ni", "a\nb\nc\nd\nX\ne\nf\ng\nh\ni\nj"),
    ("same\nold\nsame", "same\nsame"), ("x", "y"),
]  # fmt: skip


def patched(folder: Path, old: str, diff: str) -> list[str]:
    """What another program makes of the old text."""
    (folder / "text").write_text(old + "\n" if old else "")
    (folder / "diff").write_text(diff + "\n")
    tool = program("patch", "apt-get install patch")
    subprocess.run([tool, "--quiet", str(folder / "text"), str(folder / "diff")], check=True, cwd=folder)
    return (folder / "text").read_text().splitlines() if (folder / "text").exists() else []


@pytest.mark.parametrize("compared", [2000, 0], ids=["compared", "replaced"])
@pytest.mark.parametrize(("old", "new"), CASES)
def test_a_difference_turns_the_old_text_into_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, compared: int
) -> None:  # fmt: skip
    monkeypatch.setattr(versions, "_COMPARED_LINES", compared)
    diff = difference(old, new)
    assert diff.startswith("--- old\n+++ new\n@@ ")
    assert patched(tmp_path, old, diff) == new.splitlines()


def test_equal_texts_have_no_difference_and_a_huge_one_is_left_out() -> None:
    assert difference("a\nb", "a\nb") == ""
    assert difference("", "\n".join(["x" * 1000] * 1100)) == ""
    # Quadratic work would take minutes.
    many = "\n".join(f"{number % 7} line" for number in range(50_000))
    assert difference(many, f"{many}\nlast").endswith("+last")
    assert difference(many, "\n".join(reversed(many.splitlines())) + "x").count("\n") > 50_000
