"""`shoal export`: the rows of an SQLite output as JSON lines or CSV."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import click

_ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}


@click.command("export", short_help="Write pages of an SQLite output as JSON lines or CSV.")
@click.option("--from", "source", metavar="FILE", default="pages.db", show_default=True, help="SQLite output to read.")
@click.option("--to", "target", metavar="FILE|-", required=True, help="pages.jsonl or pages.csv; csv:- for stdout.")
@click.option("--crawl", metavar="NAME", help="Only pages of this crawl.")
@click.option("--force", is_flag=True, help="Overwrite a file that exists.")
def command(source: str, target: str, crawl: str | None, force: bool) -> None:
    """Write the pages of an SQLite output as JSON lines or CSV, also while a crawl runs.

    - is standard output. Cells that a spreadsheet would take for a formula get an apostrophe before them.
    """
    from shoal.cli.terminal import say
    from shoal.control.export import Pages, lines_of
    from shoal.control.whole_file import whole_file

    kind, name = _target(target)
    path = Path(source.removeprefix("sqlite:"))
    if name != "-" and path.exists() and Path(name).exists() and path.samefile(name):
        raise click.UsageError("--from and --to are the same file.")
    with contextlib.closing(Pages(path)) as pages:
        if crawl is not None:
            pages.check(crawl)
        output: Any = whole_file(name, force=force)
        if name == "-":
            output = contextlib.nullcontext(sys.stdout.buffer)
        head, line = lines_of(kind)
        count = 0
        with output as file:
            file.write(head)
            for row in pages.rows(crawl):
                file.write(line(row))
                count += 1
            file.flush()
    say(f"Exported {count:,} row{'' if count == 1 else 's'}.")


def _target(text: str) -> tuple[str, str]:
    """Kind and path: by a scheme before the path as for --out, or by the ending; - is JSON lines."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme in ("jsonl", "csv") and rest:
        return scheme, rest
    kind = "jsonl" if text == "-" else _ENDINGS.get(Path(text).suffix.lower())
    if kind is None:
        raise click.UsageError(f"--to {text!r} is of no known kind: name a .jsonl or .csv file, or write csv:{text}.")
    return kind, text
