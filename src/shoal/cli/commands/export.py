"""`shoal export`: copy the rows of one output to another."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

import click

from shoal.cli.commands.completion import files
from shoal.errors import InvalidInput


@click.command("export", short_help="Copy the pages of an output to another output.")
@click.option(
    "--from", "source", metavar="URI|NAME", default="pages.db", show_default=True, shell_complete=files,
    help="Output to read, as in --out of `shoal crawl`.",
)  # fmt: skip
@click.option(
    "--to", "target", metavar="URI|NAME|-", required=True, shell_complete=files,
    help="Any output except WARC; csv:- writes CSV to stdout.",
)  # fmt: skip
@click.option("--crawl", metavar="NAME", help="Only pages of this crawl.")
@click.option("--items", is_flag=True, help="Copy the items of spiders instead of pages (databases and streams).")
@click.option("--flat", is_flag=True, help="Items with one column for each of their fields, and no other columns.")
@click.option(
    "--fields", metavar="A,B", help="Only these columns, in this order: fields of items, or columns of pages."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(
    source: str, target: str, crawl: str | None, items: bool, flat: bool, fields: str | None, force: bool
) -> None:
    """Copy the pages of an output to another output, even while a crawl runs.

    - writes JSON lines to standard output, and a name that ends in .json is one JSON array. In a database, existing
    pages are overwritten. In CSV, cells that a spreadsheet would read as a formula are prefixed with an apostrophe.
    """
    from shoal.cli.ui.console import report, warn
    from shoal.errors import SinkRefused
    from shoal.operations.atomic_file import whole_file
    from shoal.operations.export import fields_of_items, into_lines, into_output
    from shoal.sinks import check_output

    kind, name = _target(_named(target))
    try:
        source = _source(_named(source), name)
        if kind == "":
            check_output(name)
    except SinkRefused as error:
        # This is an error of the command line.
        raise InvalidInput(str(error)) from None
    if (flat or fields) and kind == "":
        raise click.UsageError("--flat and --fields work with CSV, JSON lines and JSON: pass such a file in --to.")
    if kind == "":
        on_trouble = lambda text: warn(text) if text else None  # noqa: E731
        count = asyncio.run(into_output(source, name, on_trouble, crawl=crawl, items=items))
    else:
        output: Any = whole_file(name, force=force)
        if name == "-":
            output = contextlib.nullcontext(sys.stdout.buffer)
        columns = _columns(fields, flat=flat, source=source, crawl=crawl, items=items)
        of_items = (
            asyncio.run(fields_of_items(source, crawl=crawl, items=items)) if kind == "csv" and not columns else []
        )
        with output as file:
            line_format = _line_format(kind, columns, own=flat, of_items=of_items)
            count = asyncio.run(into_lines(source, line_format, file, name, crawl=crawl, items=items))
    report(f"Exported {count:,} row{'' if count == 1 else 's'}.")


def _named(text: str) -> str:
    """Return the URI of a name in [outputs] of shoal.toml; any other text unchanged."""
    from shoal.cli.options import settings_of
    from shoal.sinks import is_name

    return settings_of({}).outputs.get(text, text) if is_name(text) else text


def _source(text: str, target: str) -> str:
    """Return the output to read. A missing file is an error. A file with an unknown extension is read as SQLite."""
    from shoal.errors import SinkRefused
    from shoal.sinks import is_local

    try:
        if not is_local(text):
            if text == target:
                raise click.UsageError("--from and --to are the same output.")
            return text
    except SinkRefused:
        if not Path(text).is_file():
            raise
        text = f"{'warc' if text.lower().endswith(('.warc', '.warc.gz')) else 'sqlite'}:{text}"
    file_name = text if Path(text).exists() else text.partition(":")[2] or text
    path = Path(file_name)
    if not path.exists():
        raise InvalidInput(f"There is no file {file_name} to export; pass the output of a crawl.")
    target_path = Path(target) if Path(target).exists() else Path(target.partition(":")[2] or target)
    if target != "-" and target_path.exists() and path.samefile(target_path):
        raise click.UsageError("--from and --to are the same file.")
    return text


def _target(text: str) -> tuple[str, str]:
    """Return the format and path of a file (- is standard output), or '' and the URI of an output of a sink."""
    from shoal.settings import masked
    from shoal.sinks.contract import Holds, Location
    from shoal.sinks.registry import technologies, technology_of
    from shoal.sinks.uri import split_scheme

    if text == "-":
        return "jsonl", "-"
    if text.lower().endswith((".json", ".json.gz", ".json.zst")) or text.startswith("json:"):
        return "json", text.removeprefix("json:")
    technology = technology_of(text)
    scheme, path = split_scheme(text)
    if technology is not None and technology.location is not Location.CALLER:
        return (technology.name, path) if technology.line_format(items=False) else ("", text)
    if scheme and any(scheme in known.schemes for known in technologies() if known.location is not Location.CALLER):
        return "", text  # without a path: the technology reports what is missing
    schemes = [
        known.endings[0] if known.endings else f"{known.name}://"
        for known in technologies()
        if known.location is not Location.CALLER and known.holds is not Holds.CAPTURES
    ]
    shown = masked(text)
    known_kinds = ", ".join(schemes)
    raise click.UsageError(f"--to {shown!r} is not a known kind of output: use {known_kinds}, or write csv:{shown}.")


def _columns(fields: str | None, *, flat: bool, source: str, crawl: str | None, items: bool) -> list[str] | None:
    """Return the columns that were chosen; None for the columns of an output."""
    from shoal.operations.export import fields_of_items
    from shoal.settings import masked

    if fields is not None:
        if flat:
            raise click.UsageError("--fields names the columns, so omit --flat.")
        names = [name.strip() for name in fields.split(",")]
        if "" in names or len({*names}) < len(names):
            raise click.UsageError(f"--fields {fields!r} must be different names with commas between them.")
        return names
    if not flat:
        return None
    own: list[str] | None = asyncio.run(fields_of_items(source, crawl=crawl, items=items))
    if own is None:
        raise InvalidInput(f"The output {masked(source)} has pages, not items; --flat is for items.")
    return own


def _line_format(kind: str, fields: list[str] | None, *, own: bool, of_items: list[str] | None) -> Any:
    """The format of items (True) or pages (False) in files of this kind. `of_items` are the fields of the items."""
    from shoal.operations.flat_lines import check_page_fields, flat_format, json_array
    from shoal.sinks.files.csv import item_format
    from shoal.sinks.files.jsonl import file_line
    from shoal.sinks.registry import technology_of

    def chosen(items: bool) -> Any:
        if fields is None:
            technology = technology_of(f"{kind}:-")
            if technology is None:
                return json_array(lambda record: file_line(record).rstrip(b"\n"))
            if items and kind == "csv":
                return item_format(of_items or ())
            return technology.line_format(items=items)
        if not items:
            check_page_fields(fields)
        return flat_format(kind, fields, own=own)

    return chosen
