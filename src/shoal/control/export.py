"""Records of one output into another: read back, and written as a crawl would have written them.

What is read is the state of one moment where the output is a database; a crawl may write it meanwhile. A database keeps
one row of a key, so the same export again changes nothing there. Files are made whole or not at all.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

from shoal.errors import InvalidInput, SinkRefused
from shoal.model.record import Item, Record
from shoal.settings import masked
from shoal.sinks import Key, check_output, gather, has_parts, open_sink, takes
from shoal.sinks.packing import packer
from shoal.sinks.reading import read
from shoal.sinks.row import Row, encodable


async def into_lines(
    source: str, kind: str, file: BinaryIO, name: str, *, crawl: str | None = None, items: bool = False
) -> int:
    """Write JSON lines or CSV (`kind` is jsonl or csv) into an open file, packed as its name says. Returns how many."""
    pack = packer(Path(name))
    line: Callable[[Row], bytes] | None = None
    count = 0

    def put(data: bytes) -> None:
        file.write(pack.compress(data) if pack else data)

    async with aclosing(read(source, crawl=crawl, items=items)) as batches:
        async for records in batches:
            for record in records:
                if line is None:
                    head, line = _lines(kind, items=isinstance(record, Item))
                    put(head)
                try:
                    put(line(record))
                except UnicodeEncodeError:
                    put(line(encodable(record)))
            count += len(records)
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
    batches = read(source, crawl=crawl, items=items)
    # The first batch says what there is: an output holds pages or items, and a source that cannot be read makes none.
    first: Sequence[Row] = await anext(batches, [])
    spider = items or any(isinstance(record, Item) for record in first)
    if (Item if spider else Record) not in takes(target, spider=spider):
        raise SinkRefused(f"The output {masked(target)} keeps other things than {'items' if spider else 'pages'}.")
    sink = open_sink(target, worker=f"export-{os.getpid()}", on_trouble=on_trouble, spider=spider)
    count = 0
    try:
        await sink.open()
        while first:
            await sink.write(first, b"")
            await sink.settle(())
            count += len(first)
            first = await anext(batches, [])
    finally:
        await sink.close()
        await batches.aclose()
    await gather(target, live=(), replay=_settled, spider=spider)
    return count


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
        return b"", importlib.import_module("shoal.sinks.jsonl").json_line
    module = importlib.import_module("shoal.sinks.csv")
    return module.head(spider=items), module.line
