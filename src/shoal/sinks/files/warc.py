"""WARC 1.1: a folder of `.warc.gz` files, each made of one part of one worker, one file for each crawl in it.

    <crawl>-<worker>-<number>.warc.gz     a warcinfo record; then response, request and metadata of each fetch

Every record is a gzip member of its own, so the records of a part (part.py) are copied unchanged; rejected ones are
left out. This module decides what becomes visible and when, and which responses are revisits. warc_writer.py writes the
records. operations/warc_import.py reads them back as pages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from shoal.errors import SinkRefused
from shoal.model.record import Capture, RecordKey
from shoal.sinks.columns import Row, whole
from shoal.sinks.contract import Holds
from shoal.sinks.files.part import PartBatch, chunks, flush, scan, sync_folder, visible
from shoal.sinks.files.part_folder import FolderSink, FolderTechnology
from shoal.sinks.files.warc_writer import ArchivedPayload, records_of, warcinfo
from shoal.sinks.reader import Cursor, ReadRequest

# The usual size of a WARC file, and how long a page stays invisible at most.
FILE_BYTES = 1 << 30
FILE_SECONDS = 900.0
IDLE_SECONDS = 30.0
# About 480 bytes each. A payload that was forgotten is written in full again.
REMEMBERED = 20_000


class WarcSink(FolderSink):
    holds = Capture
    part_seconds = FILE_SECONDS
    part_bytes = FILE_BYTES
    idle_seconds = IDLE_SECONDS

    def __init__(self, path: Path, *, worker: str, on_trouble: Callable[[str], None], spider: bool = False) -> None:
        super().__init__(path, worker=worker, on_trouble=on_trouble, spider=spider)
        # A revisit must refer to a record that is in the archive: a payload counts when its batch is committed.
        self._written: dict[RecordKey, ArchivedPayload] = {}
        self._archived: dict[RecordKey, ArchivedPayload] = {}

    def _encoded(self, records: Sequence[Capture]) -> dict[RecordKey, bytes]:
        lines: dict[RecordKey, bytes] = {}
        self._written = {}
        for key, capture in {capture.key: capture for capture in records}.items():
            lines[whole(key[0]), whole(key[1])], kept = records_of(capture, self._archived.get(key))
            if kept is not None:
                self._written[key] = kept
        return lines

    def _commit(self, rejected: Collection[RecordKey]) -> None:
        uncommitted = self._part is not None and not self._part.committed
        super()._commit(rejected)
        if uncommitted:
            left_out = set(rejected)
            for key, kept in self._written.items():
                if key not in left_out:
                    self._archived.pop(key, None)
                    self._archived[key] = kept
            while len(self._archived) > REMEMBERED:
                del self._archived[next(iter(self._archived))]

    def _convert(self, part: Path) -> None:
        convert(part, self._path)


class WarcTechnology(FolderTechnology):
    schemes = ("warc",)
    holds = Holds.CAPTURES
    sink_class = WarcSink

    def convert(self, part: Path, output: Path) -> None:
        convert(part, output)

    def rows(self, path: Path, request: ReadRequest) -> Iterator[tuple[Cursor, Row]]:
        raise SinkRefused(
            f"The output {self.uri(path)} cannot be read back; name a database, JSON lines, CSV or Parquet."
        )


TECHNOLOGY = WarcTechnology()


def convert(part: Path, output: Path) -> None:
    """Turn a committed part into files of the output, each durable and complete when it becomes visible.

    A part's name is never used twice, and the same part gives the same bytes: after a crash the same files are written
    again over the first ones.
    """
    with part.open("rb") as source:
        batches, _ = scan(source)
        for crawl in dict.fromkeys(crawl for batch in batches.values() for crawl, _, _ in batch.batch.lines):
            ranges = _ranges(crawl, batches.values())
            first = next(ranges, None)
            if first is None:
                continue
            name = f"{quote(crawl, safe='')}-{part.stem}.warc.gz"
            # With the process id: a worker and a merge may convert the same part.
            new = output / f".{name}.{os.getpid()}.tmp"
            try:
                with new.open("wb") as target:
                    target.write(warcinfo(name, crawl, int(part.stem.rpartition("-")[2]) / 1e9))
                    for start, length in (first, *ranges):
                        target.writelines(chunks(source, start, length))
                    target.flush()
                    flush(target.fileno())
                new.rename(output / name)
                sync_folder(output)
            finally:
                new.unlink(missing_ok=True)


def _ranges(crawl: str, batches: Iterable[PartBatch]) -> Iterator[tuple[int, int]]:
    """The start and length of the records of one crawl that were not rejected."""
    for batch in batches:
        others = [(other, url) for other, url, _ in batch.batch.lines if other != crawl]
        yield from visible(batch._replace(rejected=[*(batch.rejected or ()), *others]))
