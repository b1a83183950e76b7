"""WARC 1.1: a folder of `.warc.gz` files, each made of one part of one worker, one file for each crawl in it.

    <crawl>-<worker>-<number>.warc.gz     a warcinfo record, then of every answer its response, request and metadata

Every record is a gzip member of its own, so those of a part (part.py) are copied as they are: the ones that were
refused are left out. This module owns what becomes visible and when, and which answers are revisits; the records
themselves are archive.py's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from shoal.model.record import Capture
from shoal.sinks.columns import whole
from shoal.sinks.contract import Key
from shoal.sinks.files import part_folder
from shoal.sinks.files.merge import Replay
from shoal.sinks.files.part import Piece, chunks, flush, scan, sync_folder, visible
from shoal.sinks.files.part_folder import FolderSink
from shoal.sinks.files.warc_writer import Kept, records_of, warcinfo

# What readers of archives are used to; and how long one waits at most to see a page.
FILE_BYTES = 1 << 30
FILE_SECONDS = 900.0
IDLE_SECONDS = 30.0
# About 480 bytes each. What was forgotten is written in full once more.
REMEMBERED = 20_000


class WarcSink(FolderSink):
    holds = Capture
    part_seconds = FILE_SECONDS
    part_bytes = FILE_BYTES
    idle_seconds = IDLE_SECONDS

    def __init__(self, path: Path, *, worker: str, on_trouble: Callable[[str], None], spider: bool = False) -> None:
        super().__init__(path, worker=worker, on_trouble=on_trouble, spider=spider)
        # A revisit points to a record that is in the archive: what was written counts when it is settled.
        self._written: dict[Key, Kept] = {}
        self._kept: dict[Key, Kept] = {}

    def _encoded(self, records: Sequence[Capture]) -> dict[Key, bytes]:
        lines: dict[Key, bytes] = {}
        self._written = {}
        for key, capture in {capture.key: capture for capture in records}.items():
            lines[whole(key[0]), whole(key[1])], kept = records_of(capture, self._kept.get(key))
            if kept is not None:
                self._written[key] = kept
        return lines

    def _settle(self, refused: Collection[Key]) -> None:
        unsettled = self._part is not None and not self._part.settled
        super()._settle(refused)
        if unsettled:
            gone = set(refused)
            for key, kept in self._written.items():
                if key not in gone:
                    self._kept.pop(key, None)
                    self._kept[key] = kept
            while len(self._kept) > REMEMBERED:
                del self._kept[next(iter(self._kept))]

    def _convert(self, part: Path) -> None:
        convert(part, self._path)


async def gather(output: Path, *, live: Collection[str], replay: Replay, spider: bool = False) -> None:
    await part_folder.gather(output, live=live, replay=replay, convert=convert)


def convert(part: Path, output: Path) -> None:
    """Turn a settled part into files of the output, each durable and visible at once.

    A part's name is never used twice, and the same part gives the same bytes: whoever is killed in between, the same
    files are written again over the first ones.
    """
    with part.open("rb") as source:
        pieces, _ = scan(source)
        for crawl in dict.fromkeys(crawl for piece in pieces.values() for crawl, _, _ in piece.batch.lines):
            places = _places(crawl, pieces.values())
            first = next(places, None)
            if first is None:
                continue
            name = f"{quote(crawl, safe='')}-{part.stem}.warc.gz"
            # Not of one name: the worker and the gatherer may both be at it.
            new = output / f".{name}.{os.getpid()}.tmp"
            try:
                with new.open("wb") as target:
                    target.write(warcinfo(name, crawl, int(part.stem.rpartition("-")[2]) / 1e9))
                    for start, length in (first, *places):
                        target.writelines(chunks(source, start, length))
                    target.flush()
                    flush(target.fileno())
                new.rename(output / name)
                sync_folder(output)
            finally:
                new.unlink(missing_ok=True)


def _places(crawl: str, pieces: Iterable[Piece]) -> Iterator[tuple[int, int]]:
    """Where the lines of one crawl are that were not refused."""
    for piece in pieces:
        others = [(other, url) for other, url, _ in piece.batch.lines if other != crawl]
        yield from visible(piece._replace(refused=[*(piece.refused or ()), *others]))
