"""How one item becomes bytes of a feed: by Scrapy's own exporter, with the options of the feed.

Owns which feeds can be written as part files, and why others cannot.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from itemadapter import ItemAdapter
from scrapy.crawler import Crawler
from scrapy.exporters import CsvItemExporter, JsonItemExporter, JsonLinesItemExporter, XmlItemExporter
from scrapy.extensions.feedexport import FileFeedStorage
from scrapy.utils.misc import build_from_crawler

from shoal.sinks.files.compression import compressor_of
from shoal.sinks.files.feed import Frame, agree_on_head

_LOSSY = "a process that is killed loses its items, and processes cannot share it"


def obstacle(uri: str, options: dict[str, Any], storages: dict[str, Any], exporters: dict[str, Any]) -> str:
    """Why a feed cannot be written as part files, with an alternative; '' if it can."""
    scheme = urlparse(uri).scheme
    if storages.get(scheme, storages.get("file")) is not FileFeedStorage:
        where = "is written to standard output" if scheme == "stdout" else "is stored when the spider closes"
        return f"it {where}: {_LOSSY}. Write a local file, e.g. items.jsonl, and copy it when the crawl is finished"
    if options.get("batch_item_count"):
        return f"it is split into batches: {_LOSSY}. Remove batch_item_count, and split the file afterwards"
    if options.get("postprocessing") or compressor_of(Path(uri)) is not None:
        return f"it is compressed or postprocessed: {_LOSSY}. Remove `postprocessing`, and compress the file afterwards"
    kind = exporters.get(options["format"])
    lines = isinstance(kind, type) and issubclass(kind, JsonLinesItemExporter | CsvItemExporter)
    if not lines and kind not in (JsonItemExporter, XmlItemExporter):
        return f"its format is {options['format']}: {_LOSSY}. Use jsonlines, json, csv or xml"
    return ""


class FeedFormat:
    def __init__(self, crawler: Crawler, path: Path, kind: Any, options: dict[str, Any]) -> None:
        self._crawler = crawler
        self._path = path
        self._kind = kind
        self._options = options
        self._written = io.BytesIO()
        self._fields = options["fields"]
        self._exporter: Any = None
        self._is_csv = issubclass(kind, CsvItemExporter)
        self._is_json = issubclass(kind, JsonItemExporter)
        self.frame = Frame() if self._is_csv or issubclass(kind, JsonLinesItemExporter) else self._framed()

    def encode(self, item: Any) -> bytes:
        if self._is_csv and self._exporter is None:
            self._choose_columns(item)
        if self._exporter is None:
            self._exporter = self._build(self._written)
        if self._is_json:
            # The comma belongs to the frame.
            self._exporter.first_item = True
        line = self._take(lambda: self._exporter.export_item(item))
        return line + self.frame.separator

    def _build(self, file: io.BytesIO, **more: Any) -> Any:
        options = self._options
        return build_from_crawler(
            self._kind, self._crawler, file, fields_to_export=self._fields, encoding=options["encoding"],
            indent=options["indent"], **{**options["item_export_kwargs"], **more},
        )  # fmt: skip

    def _framed(self) -> Frame:
        self._exporter = exporter = self._build(self._written)
        head = self._take(exporter.start_exporting)
        scratch = io.BytesIO()
        other = self._build(scratch)
        other.start_exporting()
        length = len(scratch.getvalue())
        other.finish_exporting()
        separator = b"" if not self._is_json else b"," if exporter.indent is None else b",\n"
        return Frame(head, separator, scratch.getvalue()[length:])

    def _choose_columns(self, item: Any) -> None:
        """The columns are those of the file, so that all processes write the same ones."""
        kwargs = self._options["item_export_kwargs"]
        if kwargs.get("include_headers_line", True):
            scratch = io.BytesIO()
            # An exporter closes its file when it is deleted.
            exporter = self._build(scratch)
            exporter.export_item(item)
            head = scratch.getvalue().splitlines(keepends=True)[0]
            exporter.finish_exporting()
            known = agree_on_head(self._path, head)
            if not self._fields:
                dialect = {name: value for name, value in kwargs.items() if name in ("delimiter", "quotechar")}
                text = known.decode(self._options["encoding"] or "utf-8", "replace")
                self._fields = next(csv.reader([text], **dialect), []) or ItemAdapter(item).field_names()
        self._exporter = self._build(self._written, include_headers_line=False)

    def _take(self, write: Callable[[], Any]) -> bytes:
        """What an exporter writes in a call."""
        write()
        data = self._written.getvalue()
        self._written.seek(0)
        self._written.truncate()
        return data
