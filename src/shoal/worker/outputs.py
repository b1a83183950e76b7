"""A worker's outputs: opened when the first record comes, and written for as long as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from shoal.errors import SinkRefused, SinkUnavailable
from shoal.frontier import mono
from shoal.sinks import Sink, is_local, open_sink
from shoal.sinks.bodies import BodyStore, are_local, open_files
from shoal.sinks.contract import Stored
from shoal.worker.outcome import VisitResult

# Looked at when another one is opened; a batch uses its own for much less.
_IDLE_SECONDS = 600.0
# A server that is restarted is back sooner. Counted from the first word of it, which may come after some seconds.
_AWAY_SECONDS = 5.0

# An output's URI, and whether it is of a crawl with a spider.
Output = tuple[str, bool]


class OutputRefused(Exception):
    """An output, by its URI, will never take what it is given; `error` says why in one sentence."""

    def __init__(self, uri: str, error: SinkRefused) -> None:
        super().__init__(str(error))
        self.uri = uri
        self.error = error


class OutputUnavailable(Exception):
    """An output, by its URI, has been away for a while, and may come back; the message says what is the matter."""

    def __init__(self, uri: str, sentence: str) -> None:
        super().__init__(sentence)
        self.uri = uri


class Outputs:
    def __init__(self, worker: str, on_trouble: Callable[[str], None]) -> None:
        self._worker = worker
        self._on_trouble = on_trouble
        self._troubled: dict[str, tuple[float, str]] = {}
        self._sinks: dict[Output, Sink] = {}
        self._used_mono: dict[Output, float] = {}
        self._files: dict[str, BodyStore] = {}

    async def sink(self, output: Output) -> Sink:
        self._used_mono[output] = mono()
        sink = self._sinks.get(output)
        if sink is None:
            await self._close_idle()
            uri, spider = output
            try:
                hear = self._on_trouble if is_local(uri) else partial(self._hear, uri)
                sink = open_sink(uri, worker=self._worker, on_trouble=hear, spider=spider)
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

    async def keep_body(self, one: VisitResult) -> VisitResult:
        """Put a body that its crawl keeps where it belongs; the record then says where that is."""
        if one.capture is None or one.record is None or one.conduct is None or not one.conduct.policy.files:
            return one
        uri, page, types = one.conduct.policy.files, one.capture.page, one.conduct.policy.file_types
        kind = page.header("content-type").lower()
        if one.record.error or not page.body or (types and not kind.startswith(types)):
            return one
        try:
            if uri not in self._files:
                hear = self._on_trouble if are_local(uri) else partial(self._hear, uri)
                self._files[uri] = open_files(uri, on_trouble=hear)
            path = await self._files[uri].keep(page.body, kind)
        except SinkRefused as error:
            raise OutputRefused(uri, error) from error
        return one._replace(record=msgspec.structs.replace(one.record, file=path))

    def _hear(self, uri: str, sentence: str) -> None:
        """A server has something to say. (A disk that is full is full for every crawl.)"""
        if sentence:
            since_mono, _ = self._troubled.get(uri, (mono(), ""))
            self._troubled[uri] = (since_mono, sentence)
        else:
            self._troubled.pop(uri, None)
        self._on_trouble(sentence)

    def check(self, uri: str) -> None:
        """OutputAway if whoever writes to this one, on a server, has waited long enough."""
        since_mono, sentence = self._troubled.get(uri, (mono(), ""))
        if mono() - since_mono > _AWAY_SECONDS:
            # Who writes to it next waits anew.
            del self._troubled[uri]
            raise OutputUnavailable(uri, sentence)

    async def reach(self, uri: str, *, files: bool) -> None:
        """Wait until an output that was away can be used again."""
        place = open_files(uri) if files else open_sink(uri, worker=self._worker)
        try:
            await place.open()
        finally:
            await place.close()

    async def close(self) -> None:
        for sink in self._sinks.values():
            await sink.close()
        for files in self._files.values():
            await files.close()
        self._sinks.clear()
        self._files.clear()
