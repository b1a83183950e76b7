"""Files of lines and of Parquet, read back. Files have no index: every row is read to find those of a crawl.

The cursor of a line is the byte behind its end. The cursor of a row of Parquet is a hash of its file's name, and its
number in the file.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from shoal.errors import ShoalError, SinkRefused, UnknownCrawl
from shoal.model.record import Item, Record
from shoal.model.validation import Count
from shoal.sinks.columns import Row
from shoal.sinks.files import flat_items, parquet_items
from shoal.sinks.files.compression import open_decompressed
from shoal.sinks.reader import Cursor, ReadRequest, Values, cursor_values, record_of, unknown_cursor

# Cells that csv.py has put an apostrophe before.
_ESCAPED_FORMULA = re.compile(r"'+[=+\-@\t\r\n＝＋－＠]")
# A row with its cursor, its description for error messages, and its values.
_Line = tuple[Cursor, str, Values]


def _of_crawl(lines: Iterable[_Line], request: ReadRequest, path: Path) -> Iterator[tuple[Cursor, Row]]:
    others = count = 0
    for cursor, description, values in lines:
        if request.crawl not in (None, values.get("crawl")):
            others += 1
            continue
        count += 1
        yield cursor, record_of(values, Item if "data" in values else Record, description)
    if others and not count and request.after is None:
        raise UnknownCrawl(f"The file {path} has no page of crawl {request.crawl!r}.")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The decompressed content of a file; SinkRefused if its content does not match its ending."""
    try:
        with open_decompressed(path) as file:
            yield file
    except ShoalError:
        raise
    except Exception as error:
        raise SinkRefused(f"The file {path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error


def _seek(file: BinaryIO, request: ReadRequest, first: int = 0) -> int:
    """Seek to the end of the cursor's line, or to the first line; returns the position."""
    if request.after is None:
        return first
    position: int = cursor_values(request.after, tuple[Count])[0]
    file.seek(max(position - 1, 0))
    if position <= first or file.read(1) != b"\n":
        raise unknown_cursor()
    return position


def _described(path: Path, start: int) -> str:
    """The end of a line's description in messages, for line numbers that are counted from this byte."""
    return f"after byte {start:,} of {path}" if start else f"of {path}"


def line_decoder(request: ReadRequest) -> Callable[[bytes, str], Values]:
    """A function that decodes one JSON object; its second argument describes the line in error messages."""
    names = {name: f"column{number}" for number, name in enumerate((*request.of_file, flat_items.KEY))}
    shape = msgspec.defstruct(
        "Line", [(column, Any, msgspec.field(default=msgspec.UNSET, name=name)) for name, column in names.items()]
    )
    decode, decode_all = msgspec.json.Decoder(shape).decode, msgspec.json.Decoder(dict[str, Any]).decode

    def values_of(line: bytes, description: str) -> Values:
        try:
            columns = decode(line)
            values = {name: getattr(columns, column) for name, column in names.items()}
            if values.pop(flat_items.KEY) is not msgspec.UNSET:
                return flat_items.item_values(decode_all(line))
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise SinkRefused(f"{description} is not a record of Shoal: {error}.") from None
        return {name: value for name, value in values.items() if value is not msgspec.UNSET}

    return values_of


def jsonl_rows(path: Path, request: ReadRequest) -> Iterator[tuple[Cursor, Row]]:
    def lines() -> Iterator[_Line]:
        values_of = line_decoder(request)
        with _opened(path) as file:
            position = _seek(file, request)
            described = _described(path, position)
            for number, line in enumerate(file, 1):
                # A last line without a line break is not complete yet.
                if not line.endswith(b"\n"):
                    break
                position += len(line)
                description = f"Line {number:,} {described}"
                yield (position,), description, values_of(line, description)

    yield from _of_crawl(lines(), request, path)


def csv_rows(path: Path, request: ReadRequest) -> Iterator[tuple[Cursor, Row]]:
    def lines() -> Iterator[_Line]:
        csv.field_size_limit(1 << 30)
        with _opened(path) as file:
            head = file.readline()
            names = [_unescaped(name) for name in next(csv.reader([head.decode()]), [])]
            flat = {*flat_items.ORIGIN} <= {*names}
            if head and not flat and not {"crawl", "url"} <= {*names}:
                raise SinkRefused(f"The file {path} is not a CSV file of Shoal; name the output of a crawl.")
            position = _seek(file, request, len(head))
            described, first = _described(path, position if request.after else 0), 0 if request.after else 1
            at_end = False

            def text_lines() -> Iterator[str]:
                nonlocal position, at_end
                for line in file:
                    if request.limit and not line.endswith(b"\n"):
                        break
                    position += len(line)
                    yield line.decode()
                at_end = True

            known = request.of_file
            rows = csv.reader(text_lines())
            for row in rows:
                # A row that ends with the file, and not with a line break, is not complete yet.
                if request.limit and at_end:
                    break
                cells = {name: _unescaped(cell) for name, cell in zip(names, row, strict=False)}
                values = {name: cell for name, cell in cells.items() if name in known}
                if flat:
                    # The cell of a field that an item does not have is empty.
                    values = flat_items.item_values({name: cell for name, cell in cells.items() if cell})
                if values:
                    yield (position,), f"Line {rows.line_num + first:,} {described}", values

    yield from _of_crawl(lines(), request, path)


def _unescaped(cell: str) -> str:
    return cell[1:] if _ESCAPED_FORMULA.match(cell) else cell


def _flat_item(row: Values, encoded: list[str]) -> Values:
    """The columns of an item, from a row of Parquet. A null means that the item does not have the field."""
    values = {name: value for name, value in row.items() if value is not None}
    for name in encoded:
        if name in values and name != flat_items.MORE:
            with contextlib.suppress(msgspec.DecodeError):
                values[name] = msgspec.json.decode(values[name])
    return flat_items.item_values(values)


def parquet_rows(path: Path, request: ReadRequest) -> Iterator[tuple[Cursor, Row]]:
    pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")

    def rows() -> Iterator[_Line]:
        files = sorted(path.glob("*.parquet"))
        # Hashed, because the names of files contain the names of workers.
        hashes = [hashlib.blake2b(file.name.encode(), digest_size=8).hexdigest() for file in files]
        first, skip = 0, 0
        if request.after is not None:
            file_hash, skip = cursor_values(request.after, tuple[str, Count])
            if file_hash not in hashes:
                raise unknown_cursor()
            first = hashes.index(file_hash)
        for file_hash, file in zip(hashes[first:], files[first:], strict=True):
            try:
                with pq.ParquetFile(file) as source:
                    schema = source.schema_arrow
                    flat = flat_items.KEY in schema.names
                    names = [name for name in schema.names if flat or name in request.of_file]
                    encoded = [name for name in names if flat and parquet_items.is_json(schema.field(name))]
                    number, group = 0, 0
                    while group < source.num_row_groups:
                        if number + source.metadata.row_group(group).num_rows > skip:
                            break
                        number, group = number + source.metadata.row_group(group).num_rows, group + 1
                    groups = range(group, source.num_row_groups)
                    for batch in source.iter_batches(batch_size=100, row_groups=groups, columns=names):
                        skipped = min(max(skip - number, 0), batch.num_rows)
                        number += skipped
                        for values in batch.slice(skipped).to_pylist():
                            number += 1
                            if flat:
                                values = _flat_item(values, encoded)
                            elif hops := values.get("redirects"):
                                values["redirects"] = [(hop["url"], hop["status"]) for hop in hops]
                            yield (file_hash, number), f"The row of {values.get('url')!r:.200} in {file}", values
                skip = 0
            except (pa.ArrowException, OSError) as error:
                raise SinkRefused(f"The file {file} cannot be read as Parquet: {error}.") from error

    yield from _of_crawl(rows(), request, path)
