"""A worker's outputs: opened when the first record comes, and written for as long as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from shoal.errors import SinkRefused, SinkUnavailable
from shoal.frontier import mono
from shoal.sinks import Sink, open_sink
from shoal.sinks.contract import Stored
from shoal.sinks.files import Files, open_files
from shoal.worker.finished import Finished

# Looked at when another one is opened; a batch uses its own for much less.
_IDLE_SECONDS = 600.0

# An output's URI, and whether it is of a crawl with a spider.
Output = tuple[str, bool]


class OutputRefused(Exception):
    """An output, by its URI, will never take what it is given; `error` says why in one sentence."""

    def __init__(self, uri: str, error: SinkRefused) -> None:
        super().__init__(str(error))
        self.uri = uri
        self.error = error


class Outputs:
    def __init__(self, worker: str, on_trouble: Callable[[str], None]) -> None:
        self._worker = worker
        self._on_trouble = on_trouble
        self._sinks: dict[Output, Sink] = {}
        self._used_mono: dict[Output, float] = {}
        self._files: dict[str, Files] = {}

    async def sink(self, output: Output) -> Sink:
        self._used_mono[output] = mono()
        sink = self._sinks.get(output)
        if sink is None:
            await self._close_idle()
            uri, spider = output
            try:
                sink = open_sink(uri, worker=self._worker, on_trouble=self._on_trouble, spider=spider)
                await sink.open()
            except SinkRefused as error:
                raise OutputRefused(uri, error) from error
            self._sinks[output] = sink
        return sink

    async def _close_idle(self) -> None:
        """A worker may live for months, and each crawl may have an output of its own."""
        before = mono() - _IDLE_SECONDS
        for output in [one for one, when in self._used_mono.items() if when < before]:
            del self._used_mono[output]
            if sink := self._sinks.pop(output, None):
                await sink.close()

    async def write(self, output: Output, records: list[Stored], receipt: bytes) -> None:
        """An output that is away comes back; until then nothing is dropped."""
        sink = await self.sink(output)
        while True:
            try:
                await sink.write(records, receipt)
                return
            except SinkRefused as error:
                raise OutputRefused(output[0], error) from error
            except SinkUnavailable as error:
                self._on_trouble(str(error))
                await asyncio.sleep(1.0)

    async def keep_body(self, one: Finished) -> Finished:
        """Put a body that its crawl keeps where it belongs; the record then says where that is."""
        if one.capture is None or one.record is None or one.conduct is None or not one.conduct.policy.files:
            return one
        uri, page, types = one.conduct.policy.files, one.capture.page, one.conduct.policy.file_types
        kind = page.header("content-type").lower()
        if one.record.error or not page.body or (types and not kind.startswith(types)):
            return one
        try:
            if uri not in self._files:
                self._files[uri] = open_files(uri, on_trouble=self._on_trouble)
            path = await self._files[uri].keep(page.body, kind)
        except SinkRefused as error:
            raise OutputRefused(uri, error) from error
        return one._replace(record=msgspec.structs.replace(one.record, file=path))

    async def close(self) -> None:
        for sink in self._sinks.values():
            await sink.close()
        for files in self._files.values():
            await files.close()
        self._sinks.clear()
        self._files.clear()
