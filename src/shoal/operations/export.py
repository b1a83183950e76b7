"""Export: copy the records of one output to another, as a crawl would have written them.

A database is read as of one point in time, even if a crawl writes to it. A stream may contain a record twice; the last
record of each key is exported. A database keeps one row per key, so repeating an export changes nothing there. A file
is created complete or not at all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

from shoal.errors import InvalidInput, SinkUnavailable, UnknownCrawl
from shoal.model.record import Item, Record, RecordKey
from shoal.settings import masked
from shoal.sinks import check_output, has_parts, merge, open_sink
from shoal.sinks.columns import Row, encodable
from shoal.sinks.contract import Holds, LineFormat, Location
from shoal.sinks.files.compression import compressor_of
from shoal.sinks.reader import ReadRequest, in_batches, read
from shoal.sinks.registry import ParsedOutput, parse_output


async def into_lines(
    source: str,
    line_format: Callable[[bool], LineFormat],
    file: BinaryIO,
    name: str,
    *,
    crawl: str | None = None,
    items: bool = False,
) -> int:
    """Write lines into an open file, compressed according to its name. Returns the number of records.

    `line_format` returns the format of items (True) or pages (False).
    """
    compressor = compressor_of(Path(name))
    lines: LineFormat | None = None
    count = 0

    def put(data: bytes) -> None:
        file.write(compressor.compress(data) if compressor else data)

    async with aclosing(records(source, crawl=crawl, items=items)) as batches:
        async for batch in batches:
            for record in batch:
                if lines is None:
                    lines = line_format(isinstance(record, Item))
                    put(lines.head)
                else:
                    put(lines.between)
                try:
                    put(lines.encode(record))
                except UnicodeEncodeError:
                    put(lines.encode(encodable(record)))
            count += len(batch)
    if lines is None:
        lines = line_format(items)
        put(lines.head)
    put(lines.tail)
    if compressor:
        file.write(compressor.flush())
    file.flush()
    return count


async def fields_of_items(source: str, *, crawl: str | None = None, items: bool = False) -> list[str] | None:
    """The names of the fields of an output's items, in the order of their first appearance; None if it has pages."""
    names: dict[str, None] = {}
    async with aclosing(records(source, crawl=crawl, items=items)) as batches:
        async for batch in batches:
            for record in batch:
                if not isinstance(record, Item):
                    return None
                names |= dict.fromkeys(map(str, record.data))
    return list(names)


async def into_output(
    source: str, target: str, on_trouble: Callable[[str], None], *, crawl: str | None = None, items: bool = False
) -> int:
    """Write into a database, or into a folder, which must be empty. Returns the number of records."""
    target = check_output(target)
    output = parse_output(target)
    _check_empty(output)
    if output.technology.holds is Holds.CAPTURES:
        raise InvalidInput(
            f"The output {target} is a WARC archive: other outputs do not have the responses it needs; choose another "
            "output."
        )
    count = 0
    async with aclosing(records(source, crawl=crawl, items=items)) as batches:
        # Read the first batch before the target is created: it shows whether the source has pages or items.
        batch: Sequence[Row] = await anext(batches, [])
        spider = items or any(isinstance(record, Item) for record in batch)
        sink = open_sink(target, worker=f"export-{os.getpid()}", on_trouble=on_trouble, spider=spider)
        try:
            await sink.open()
            while batch:
                await sink.write(batch, b"")
                await sink.commit(())
                count += len(batch)
                batch = await anext(batches, [])
        finally:
            await sink.close()
    await merge(target, live=(), replay=_all_committed, spider=spider)
    return count


async def records(source: str, *, crawl: str | None = None, items: bool = False) -> AsyncGenerator[Sequence[Row], None]:
    """Batches of an output's records, for any technology."""
    output = parse_output(source)
    output.check_driver()
    if output.technology.holds is Holds.CAPTURES:
        selected = _archived(Path(output.address), crawl, items=items)
    elif output.technology.repeats:
        selected = _without_duplicates(output, crawl, items=items)
    else:
        selected = read(source, crawl=crawl, items=items)
    async with aclosing(selected) as batches:
        async for batch in batches:
            yield batch


async def _archived(path: Path, crawl: str | None, *, items: bool) -> AsyncGenerator[Sequence[Row], None]:
    if items:
        raise InvalidInput(f"The archive {path} contains responses, not items; omit --items.")
    from shoal.operations.warc_import import pages

    async with aclosing(in_batches(pages(path, crawl))) as batches:
        async for rows in batches:
            yield [row for _, row in rows]


async def _without_duplicates(
    output: ParsedOutput, crawl: str | None, *, items: bool
) -> AsyncGenerator[Sequence[Row], None]:
    """The records of a stream, copied to a temporary database, which keeps one record per key."""
    # This precedes the creation of the database, because some streams cannot be read.
    stream = output.technology.read(output.address, ReadRequest(None, items=items, columns=()))
    with tempfile.TemporaryDirectory(prefix="shoal-export-") as folder:
        copy = f"sqlite:{folder}/records.db"
        has_pages = False

        def fail(sentence: str) -> None:
            if sentence:
                raise SinkUnavailable(
                    f"The folder {folder} for a temporary copy of the stream cannot be written; set TMPDIR to one with "
                    "more space."
                )

        sink = open_sink(copy, worker="export", on_trouble=fail, spider=True)
        try:
            await sink.open()
            async with aclosing(stream) as batches:
                async for batch in batches:
                    rows = [row for _, row in batch]
                    has_pages = has_pages or any(isinstance(row, Record) for row in rows)
                    await sink.write(rows, b"")
        finally:
            await sink.close()
        # A stream without pages is a stream of items, like a file of items.
        try:
            async with aclosing(read(copy, crawl=crawl, items=items or not has_pages)) as copied:
                async for selected in copied:
                    yield selected
        except UnknownCrawl:
            raise UnknownCrawl(f"The output {masked(output.uri)} has no record of crawl {crawl!r}.") from None


def _check_empty(output: ParsedOutput) -> None:
    if output.technology.location is Location.FOLDER:
        folder = Path(output.address)
        if has_parts(output.uri) or any(folder.glob("*")):
            raise InvalidInput(f"The output {folder} already exists; choose another one.")


async def _all_committed(receipt: bytes) -> Collection[RecordKey]:
    """The store's reply to a receipt. Each batch of an export is committed when it is written."""
    return ()
