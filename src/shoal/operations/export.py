"""Records of one output into another: read back, and written as a crawl would have written them.

What is read is the state of one moment where the output is a database; a crawl may write it meanwhile. Of a stream,
where a record may be twice, the last of each key counts. A database keeps one row of a key, so the same export again
changes nothing there. Files are made whole or not at all.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

from shoal.errors import InvalidInput, SinkUnavailable, UnknownCrawl
from shoal.model.record import Capture, Item, Record
from shoal.settings import masked
from shoal.sinks import Key, Location, check_output, gather, has_parts, open_sink, takes
from shoal.sinks.columns import Row, encodable
from shoal.sinks.files.compression import packer
from shoal.sinks.reader import in_batches, kind_of, read


async def into_lines(
    source: str, kind: str, file: BinaryIO, name: str, *, crawl: str | None = None, items: bool = False
) -> int:
    """Write JSON lines or CSV (`kind` is jsonl or csv) into an open file, packed as its name says. Returns how many."""
    pack = packer(Path(name))
    line: Callable[[Row], bytes] | None = None
    count = 0

    def put(data: bytes) -> None:
        file.write(pack.compress(data) if pack else data)

    async with aclosing(records(source, crawl=crawl, items=items)) as batches:
        async for batch in batches:
            for record in batch:
                if line is None:
                    head, line = _lines(kind, items=isinstance(record, Item))
                    put(head)
                try:
                    put(line(record))
                except UnicodeEncodeError:
                    put(line(encodable(record)))
            count += len(batch)
    if line is None:
        put(_lines(kind, items=items)[0])
    if pack:
        file.write(pack.flush())
    file.flush()
    return count


async def into_output(
    source: str, target: str, on_trouble: Callable[[str], None], *, crawl: str | None = None, items: bool = False
) -> int:
    """Write into a database, which is added to, or a folder of files, which must be new. Returns how many."""
    target = check_output(target)
    _check_new(target)
    if Capture in takes(target, spider=False):
        raise InvalidInput(
            f"The output {target} is an archive of answers, which other outputs do not have; name another."
        )
    count = 0
    async with aclosing(records(source, crawl=crawl, items=items)) as batches:
        # The first batch says what there is: an output holds pages or items; a source that cannot be read makes none.
        batch: Sequence[Row] = await anext(batches, [])
        spider = items or any(isinstance(record, Item) for record in batch)
        sink = open_sink(target, worker=f"export-{os.getpid()}", on_trouble=on_trouble, spider=spider)
        try:
            await sink.open()
            while batch:
                await sink.write(batch, b"")
                await sink.settle(())
                count += len(batch)
                batch = await anext(batches, [])
        finally:
            await sink.close()
    await gather(target, live=(), replay=_settled, spider=spider)
    return count


async def records(source: str, *, crawl: str | None = None, items: bool = False) -> AsyncGenerator[Sequence[Row], None]:
    """Batches of what an output has, of whichever kind it is."""
    kind, where = kind_of(source)
    if kind.scheme == "warc":
        if items:
            raise InvalidInput(f"The archive {where} has answers and no items; leave --items out.")
        archived = importlib.import_module("shoal.operations.warc_import")
        async with aclosing(in_batches(archived.pages(Path(where), crawl))) as found:
            async for rows in found:
                yield [row for _, row in rows]
    elif kind.scheme in ("amqp", "amqps"):
        raise InvalidInput(f"The output {masked(source)} cannot be read back: an exchange keeps nothing; name another.")
    elif kind.place is Location.STREAM:
        async with aclosing(_once(kind.scheme, str(where), crawl, items=items)) as batches:
            async for batch in batches:
                yield batch
    else:
        async with aclosing(read(source, crawl=crawl, items=items)) as batches:
            async for batch in batches:
                yield batch


async def _once(scheme: str, uri: str, crawl: str | None, *, items: bool) -> AsyncGenerator[Sequence[Row], None]:
    """The records of a stream, put into a database for a while: it keeps one of a key, whatever their number."""
    streams = importlib.import_module("shoal.sinks.streams.reader")
    with tempfile.TemporaryDirectory(prefix="shoal-export-") as folder:
        kept = f"sqlite:{folder}/records.db"
        pages = False

        def fail(text: str) -> None:
            if text:
                raise SinkUnavailable(
                    f"The folder {folder}, where the records of a stream are kept meanwhile, cannot be written; set "
                    "TMPDIR to one with more room."
                )

        sink = open_sink(kept, worker="export", on_trouble=fail, spider=True)
        try:
            await sink.open()
            async with aclosing(streams.read(scheme, uri)) as batches:
                async for batch in batches:
                    pages = pages or any(isinstance(record, Record) for record in batch)
                    await sink.write(batch, b"")
        finally:
            await sink.close()
        # Without pages it is a stream of items, as a file would be a file of items.
        try:
            async with aclosing(read(kept, crawl=crawl, items=items or not pages)) as rows:
                async for found in rows:
                    yield found
        except UnknownCrawl:
            raise UnknownCrawl(f"The output {masked(uri)} has nothing of crawl {crawl!r}.") from None


def _check_new(target: str) -> None:
    where = target.partition(":")[2]
    if target.startswith("parquet:") and (has_parts(target) or any(Path(where).glob("*"))):
        raise InvalidInput(f"The output {where} exists already: name another one.")


async def _settled(receipt: bytes) -> Collection[Key]:
    """Every batch of ours is settled when it is written."""
    return ()


def _lines(kind: str, *, items: bool) -> tuple[bytes, Callable[[Row], bytes]]:
    """What a file begins with, and how a record becomes a line of it."""
    if kind == "jsonl":
        return b"", importlib.import_module("shoal.sinks.files.jsonl").json_line
    module = importlib.import_module("shoal.sinks.files.csv")
    return module.head(spider=items), module.line
