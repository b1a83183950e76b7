"""A worker's outputs: the open sinks, and which of them are unavailable.

`Outputs` opens a sink when the first record for it arrives and writes until the sink has taken the batch.
`OutputHealth` owns the state of availability. In a worker that serves many crawls, an output that is down for some
seconds is unavailable: the crawls that use it are paused, and their pages stay leased and in memory. No other crawl
waits with them and nothing is fetched twice. When the output is back, the pages are delivered and the crawls resumed.
A worker publishes which crawls it has paused, so that the maintenance can resume them if the worker dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from functools import partial

import msgspec

from shoal.errors import CrawlEnded, SinkRefused, SinkUnavailable, StoreError, UnknownCrawl
from shoal.frontier import Frontier, mono
from shoal.leases.held_lease import HeldLease
from shoal.model.crawl import OUTPUT_REFUSED, OUTPUT_UNAVAILABLE, State
from shoal.sinks import Sink, is_local, open_sink
from shoal.sinks.bodies import BodyStore, are_local, open_files
from shoal.sinks.contract import Stored
from shoal.worker.crawl_context import CrawlContext
from shoal.worker.outcome import VisitResult

# Sinks that were unused for this long are closed when another one is opened.
_IDLE_SECONDS = 600.0
# An output that reports trouble for this long is unavailable. A server that restarts is back sooner.
_UNAVAILABLE_SECONDS = 5.0
# Beyond this weight, pages of an unavailable output are not kept in memory but fetched again.
_MOST_WEIGHT = 50_000_000
# If an output is unavailable again within the first time, its probes are delayed by the second time for each outage.
_RELAPSE_SECONDS, _SECONDS_PER_RELAPSE = 120.0, 15.0

# An output's URI, and whether it belongs to a crawl with a spider.
Output = tuple[str, bool]
# Returns where the sink of a URI reports trouble; the flag says that the output is on this machine.
OutputListener = Callable[[str, bool], Callable[[str], None]]


class OutputRefused(Exception):
    """An output rejects the records permanently; `error` is the reason."""

    def __init__(self, uri: str, error: SinkRefused) -> None:
        super().__init__(str(error))
        self.uri = uri
        self.error = error


class OutputUnavailable(Exception):
    """An output has been unavailable for a while and may come back; the message is the reason."""

    def __init__(self, uri: str, message: str) -> None:
        super().__init__(message)
        self.uri = uri


class _Outage:
    """One unavailable output: the pages that wait for it, the crawls paused for it, the task that probes it."""

    def __init__(self, message: str) -> None:
        self.message = message
        self.kept: list[VisitResult] = []
        self.crawls: set[str] = set()
        self.probing: asyncio.Task[None] | None = None


class OutputHealth:
    def __init__(
        self, frontier: Frontier, deliver: Callable[[VisitResult], None], on_trouble: Callable[[str], None]
    ) -> None:
        """`deliver` takes each page that was kept, when its output is back."""
        self._frontier = frontier
        self._deliver = deliver
        self._on_trouble = on_trouble
        # Outputs that report trouble: since when, and the last message.
        self._troubled: dict[str, tuple[float, str]] = {}
        self._outages: dict[str, _Outage] = {}
        # Outages that are over: when the last one ended, and how many followed each other closely.
        self._relapses: dict[str, tuple[float, int]] = {}
        # Crawls paused because an output rejects their records.
        self._refused_crawls: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._outages)

    def __len__(self) -> int:
        """How many pages are kept."""
        return sum(len(outage.kept) for outage in self._outages.values())

    @property
    def paused_crawls(self) -> list[str]:
        """The crawls that this worker has paused."""
        return sorted({name for outage in self._outages.values() for name in outage.crawls})

    @property
    def message(self) -> str:
        return next((outage.message for outage in self._outages.values()), "")

    def listener(self, uri: str, local: bool) -> Callable[[str], None]:
        """Where the sink of an output reports trouble. A full disk is full for every crawl, so it pauses none."""
        return self._on_trouble if local else partial(self._note, uri)

    def _note(self, uri: str, message: str) -> None:
        if message:
            since_mono, _ = self._troubled.get(uri, (mono(), ""))
            self._troubled[uri] = (since_mono, message)
        else:
            self._troubled.pop(uri, None)
        self._on_trouble(message)

    def check(self, uri: str) -> None:
        """Raise OutputUnavailable if an output has reported trouble for long enough."""
        since_mono, message = self._troubled.get(uri, (mono(), ""))
        if mono() - since_mono > _UNAVAILABLE_SECONDS:
            # The next write starts to count again.
            del self._troubled[uri]
            raise OutputUnavailable(uri, message)

    def unavailable_output(self, context: CrawlContext | None) -> str:
        """The URI of an unavailable output of this crawl, '' if there is none."""
        if not self._outages or context is None:
            return ""
        return next((uri for uri in context.output_uris if uri in self._outages), "")

    async def take_out(
        self, batch: list[VisitResult], unavailable: OutputUnavailable | None
    ) -> tuple[list[VisitResult], set[HeldLease]]:
        """Keep the pages whose output is unavailable, now or since earlier. Returns the rest, and their leases."""
        if unavailable is not None and unavailable.uri not in self._outages:
            uri = unavailable.uri
            files = any(result.context is not None and uri == result.context.policy.files for result in batch)
            self._outages[uri] = outage = _Outage(str(unavailable))
            outage.probing = asyncio.create_task(self._wait(uri, outage, files=files))
        rest, leases, crawls, room = [], set(), set(), _MOST_WEIGHT - self._weight
        for result in batch:
            uri = self.unavailable_output(result.context)
            if not uri or result.context is None:
                rest.append(result)
                continue
            crawls.add((uri, result.context.name))
            room -= result.weight
            if room > 0:
                self._outages[uri].kept.append(result)
                leases.add(result.lease)
            else:
                # Fetched again when the crawl is resumed.
                rest.append(VisitResult(result.lease, result.visit, result.visit.retry(1.0)))
        for uri, crawl in sorted(crawls):
            await self.pause(uri, crawl)
        return rest, leases

    @property
    def _weight(self) -> int:
        return sum(result.weight for outage in self._outages.values() for result in outage.kept)

    async def pause(self, uri: str, crawl: str) -> None:
        """Pause a crawl of an unavailable output, so that no worker leases more of it."""
        outage = self._outages.get(uri)
        if outage is None:
            return
        if crawl not in outage.crawls:
            outage.crawls.add(crawl)
            text = f"Crawl {crawl} is paused until its output is available again: {outage.message}"
            print(text, file=sys.stderr, flush=True)
        # While the store is unavailable, nothing can be done anyway.
        with contextlib.suppress(StoreError, CrawlEnded, UnknownCrawl):
            await self._frontier.crawls.pause(crawl, OUTPUT_UNAVAILABLE)

    async def refuse(self, batch: list[VisitResult], refused: OutputRefused) -> list[VisitResult]:
        """Pause the crawls whose output rejects their records. Their pages are fetched again after a resume."""
        rest = []
        for result in batch:
            context = result.context
            if context is not None and refused.uri in context.output_uris:
                result = VisitResult(result.lease, result.visit, result.visit.retry(1.0))
                if context.name not in self._refused_crawls:
                    self._refused_crawls.add(context.name)
                    print(f"Crawl {context.name} is paused: {refused}", file=sys.stderr, flush=True)
                with contextlib.suppress(StoreError, CrawlEnded, UnknownCrawl):
                    await self._frontier.crawls.pause(context.name, OUTPUT_REFUSED)
            rest.append(result)
        return rest

    async def _wait(self, uri: str, outage: _Outage, *, files: bool) -> None:
        """Probe an unavailable output until it is back, then deliver its pages and resume its crawls."""
        ended_mono, relapses = self._relapses.get(uri, (0.0, 0))
        if mono() - ended_mono > _RELAPSE_SECONDS:
            relapses = 0
        # The output accepted a connection but no records: every attempt holds up other crawls for some seconds.
        await asyncio.sleep(min(_SECONDS_PER_RELAPSE * relapses, _RELAPSE_SECONDS / 2))
        # If the output now rejects records, the next write reports that.
        with contextlib.suppress(Exception):
            await _probe(uri, self._frontier.worker, files=files)
        del self._outages[uri]
        self._relapses[uri] = (mono(), relapses + 1)
        for result in outage.kept:
            self._deliver(result)
        for crawl in sorted(outage.crawls):
            message = f"Crawl {crawl} is resumed: its output is available again."
            # If this call fails, the maintenance resumes the crawl.
            with contextlib.suppress(StoreError, CrawlEnded, UnknownCrawl):
                if (await self._frontier.crawls.resume(crawl, OUTPUT_UNAVAILABLE)).state is State.PAUSED:
                    message = f"The output of crawl {crawl} is available again. The crawl stays paused."
            print(message, file=sys.stderr, flush=True)

    async def close(self) -> None:
        """Stop probing. Pages that are still kept are released with their leases."""
        probing = [outage.probing for outage in self._outages.values() if outage.probing is not None]
        for task in probing:
            task.cancel()
        await asyncio.gather(*probing, return_exceptions=True)


async def _probe(uri: str, worker: str, *, files: bool) -> None:
    """Wait until an output can be opened."""
    output = open_files(uri) if files else open_sink(uri, worker=worker)
    try:
        await output.open()
    finally:
        await output.close()


class Outputs:
    """The open sinks of a worker."""

    def __init__(self, worker: str, listener: OutputListener, on_trouble: Callable[[str], None]) -> None:
        self._worker = worker
        self._listener = listener
        self._on_trouble = on_trouble
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
                listener = self._listener(uri, is_local(uri))
                sink = open_sink(uri, worker=self._worker, on_trouble=listener, spider=spider)
                await sink.open()
            except SinkRefused as error:
                raise OutputRefused(uri, error) from error
            self._sinks[output] = sink
        return sink

    async def _close_idle(self) -> None:
        """A worker may run for months, and each crawl may have an output of its own."""
        before = mono() - _IDLE_SECONDS
        for output in [output for output, used_mono in self._used_mono.items() if used_mono < before]:
            del self._used_mono[output]
            if sink := self._sinks.pop(output, None):
                await sink.close()

    async def write(self, output: Output, records: list[Stored], receipt: bytes) -> None:
        """Write a batch, and retry for as long as the output is unavailable."""
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

    async def store_body(self, result: VisitResult) -> VisitResult:
        """Store the body of a page if its crawl keeps bodies, and name its file in the record."""
        context, record, capture = result.context, result.record, result.capture
        if capture is None or record is None or context is None or not context.policy.files:
            return result
        uri, page, types = context.policy.files, capture.page, context.policy.file_types
        kind = page.header("content-type").lower()
        if record.error or not page.body or (types and not kind.startswith(types)):
            return result
        try:
            if uri not in self._files:
                listener = self._listener(uri, are_local(uri))
                self._files[uri] = open_files(uri, on_trouble=listener)
            path = await self._files[uri].keep(page.body, kind)
        except SinkRefused as error:
            raise OutputRefused(uri, error) from error
        return result._replace(record=msgspec.structs.replace(record, file=path))

    async def close(self) -> None:
        for sink in self._sinks.values():
            await sink.close()
        for files in self._files.values():
            await files.close()
        self._sinks.clear()
        self._files.clear()
