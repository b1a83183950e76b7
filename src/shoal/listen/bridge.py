"""Requests from a source into a store: at least once, and each crawl once, because its name identifies it.

A message is acknowledged only after its crawl is stored, its action has its reply, or the message is in the dead-letter
queue with the reason. A reply that the broker refuses ends there too: no message can stop the bridge. After a failure
before that, the source delivers it again. A request without a name gets one from the message's id, so that a repeated
delivery creates no second crawl. The senders are not authenticated, so they cannot use options that need the
administrator role.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from shoal.errors import (
    InvalidInput,
    ShoalError,
    StoreCorrupt,
    StoreFull,
    StoreNotReady,
    StoreRefused,
    UnknownCrawl,
)
from shoal.frontier import Frontier
from shoal.listen.expiry import ExpiryNotices
from shoal.listen.source import (
    MAX_LETTER_BYTES,
    DeliveryRefused,
    ReceivedMessage,
    Source,
    SourceUnavailable,
    dead_letter,
)
from shoal.model.crawl_request import CrawlRequest
from shoal.operations.events import Emit, emit_action
from shoal.operations.scrapy_cluster import ClusterAction, act
from shoal.operations.scrapy_cluster_fleet import DomainUpdate, StatsRequest, collect_stats
from shoal.operations.spider_options import SpiderOptions
from shoal.operations.submit import MAX_REQUEST_BYTES, check_message, parse, submit, to_submission

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0
REPORT_EVERY_SECONDS = 60.0
_QUEUE_NAME = re.compile(r"[A-Za-z0-9._:=/+-]{1,200}\Z")
_SHORT_LETTER_BYTES = 10_000
# Errors of the store. The message is not the cause, so it is not rejected.
_STORE_ERRORS = (StoreNotReady, StoreFull)


class ParsedMessage(NamedTuple):
    message: ReceivedMessage
    # What the message requests, or the reason why it is invalid.
    request: CrawlRequest | ClusterAction | StatsRequest | DomainUpdate | str
    # The queue for the reply; '' means the source's own.
    reply_to: str


class Bridge:
    """`emit` receives the events. `outputs` are the settings' [outputs].

    `networks` are the private networks that notifications may reach, `spiders` what spiders set for their crawls.
    """

    def __init__(
        self,
        frontier: Frontier,
        source: Source,
        emit: Emit,
        outputs: Mapping[str, str] | None = None,
        networks: str = "",
        spiders: SpiderOptions | None = None,
    ) -> None:
        self.crawls = self.replies = self.rejected = 0
        self._frontier = frontier
        self._source = source
        self._emit = emit
        self._outputs = outputs or {}
        self._networks = networks
        self._spiders = spiders or {}
        self._expiry = ExpiryNotices(frontier, source, emit)
        self._stop = asyncio.Event()
        # When a failure was last reported; None while everything works.
        self._reported_mono: float | None = None

    def stop(self) -> None:
        """Stop after the messages that were already received."""
        self._stop.set()

    async def run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        try:
            while not self._stop.is_set():
                try:
                    await self._source.open()
                    while not self._stop.is_set():
                        await self._handle_batch()
                        await self._expiry.send_due()
                        pause = FIRST_PAUSE_SECONDS
                        self._report_recovery()
                except SourceUnavailable as error:
                    self._report_failure(f"source {self._source.shown} {error}; retrying")
                except _STORE_ERRORS as error:
                    self._report_failure(str(error))
                await self._source.close()
                await self._sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        finally:
            await self._source.close()

    async def _handle_batch(self) -> None:
        handled: list[ReceivedMessage] = []
        try:
            prefixes = self._source.reply_prefixes
            for group in _groups(
                [_parse(message, prefixes, self._spiders) for message in await self._source.receive()]
            ):
                outcomes = await asyncio.gather(*map(self._outcome, group), return_exceptions=True)
                for parsed, outcome in zip(group, outcomes, strict=True):
                    if isinstance(outcome, BaseException):
                        raise outcome
                    await self._finish(parsed, outcome)
                    handled.append(parsed.message)
        finally:
            # Messages before a failed one are acknowledged, or they would be rejected again and again while the store
            # is unavailable. Messages behind it are not: a source may only know how far it was read.
            if handled:
                await self._source.acknowledge(handled)

    async def _outcome(self, parsed: ParsedMessage) -> dict[str, Any] | str:
        """The reply, empty when the request has none, or the reason for a rejection."""
        try:
            if isinstance(parsed.request, str):
                return parsed.request
            if isinstance(parsed.request, DomainUpdate):
                raise InvalidInput(
                    f"{parsed.request.action} is not allowed here: only an administrator can change hosts, with "
                    "`shoal hosts` or POST /feed of the HTTP API."
                )
            if isinstance(parsed.request, ClusterAction | StatsRequest):
                return await self._act(parsed.request)
            await self._submit(parsed.request, parsed.message)
            return {}
        except (*_STORE_ERRORS, StoreRefused, StoreCorrupt):
            raise
        except ShoalError as error:
            return str(error)
        except Exception as error:
            return f"Internal error (a bug in Shoal): {type(error).__name__}: {error}."

    async def _finish(self, parsed: ParsedMessage, outcome: dict[str, Any] | str) -> None:
        if outcome and not isinstance(outcome, str):
            try:
                await self._source.reply(parsed.message, parsed.reply_to, msgspec.json.encode(outcome))
                self.replies += 1
                return
            except DeliveryRefused as error:
                outcome = f"The action was carried out, but its reply cannot be sent: {error}"
        if isinstance(outcome, str):
            self.rejected += 1
            self._report_refusal(parsed.request, outcome)
            await self._bury(parsed.message, outcome)

    async def _bury(self, message: ReceivedMessage, reason: str) -> None:
        """Send the dead letter. If even a short one is refused, its hash is logged and the message is lost."""
        refusal = ""
        for max_bytes in (MAX_LETTER_BYTES, _SHORT_LETTER_BYTES):
            try:
                return await self._source.reject(message, dead_letter(message, reason, max_bytes))
            except DeliveryRefused as error:
                refusal = str(error)
        digest = hashlib.sha256(message.body).hexdigest()
        self._emit(f"a request was dropped: its dead letter cannot be stored: {refusal}", event="request.dropped",
                   source=self._source.shown, sha256=digest, bytes=len(message.body))  # fmt: skip

    async def _submit(self, request: CrawlRequest, message: ReceivedMessage) -> None:
        request = check_message(request, message.body, message_id=message.id, outputs=self._outputs)
        request = self._expiry.mark(request)
        submission = to_submission(request, networks=self._networks)
        submitted = await submit(self._frontier, submission, outputs=self._outputs)
        self._expiry.watch(submitted.id, request)
        self.crawls += submitted.created
        self._emit(
            f"crawl {submitted.id} was submitted{'' if submitted.created else ' again'}", event="crawl.submitted",
            crawl=submitted.id, app=request.app, seeds=len(request.seeds), source=self._source.shown,
            created=submitted.created,
        )  # fmt: skip

    async def _act(self, action: ClusterAction | StatsRequest) -> dict[str, Any]:
        try:
            if isinstance(action, StatsRequest):
                return await collect_stats(self._frontier, action)
            reply = await act(self._frontier, action)
            await emit_action(self._emit, self._frontier, action, source=self._source.shown)
            return reply
        except (UnknownCrawl, InvalidInput) as error:
            self._report_refusal(action, str(error))
            return {**msgspec.to_builtins(action), "error": str(error)}

    def _report_refusal(
        self, request: CrawlRequest | ClusterAction | StatsRequest | DomainUpdate | str, reason: str
    ) -> None:  # fmt: skip
        crawl = app = ""
        if isinstance(request, CrawlRequest):
            crawl, app = request.name, request.app
        elif isinstance(request, ClusterAction):
            crawl, app = request.crawlid or "", request.appid
        elif isinstance(request, StatsRequest | DomainUpdate):
            app = request.appid
        text = f"a request was refused: {reason}"
        self._emit(text, event="request.refused", crawl=crawl, app=app, source=self._source.shown)

    def _report_failure(self, sentence: str) -> None:
        now = time.monotonic()
        if self._reported_mono is None or now - self._reported_mono >= REPORT_EVERY_SECONDS:
            self._reported_mono = now
            self._emit(sentence, event="listen.trouble")

    def _report_recovery(self) -> None:
        if self._reported_mono is not None:
            self._reported_mono = None
            self._emit(f"reconnected to source {self._source.shown}", event="listen.recovered")

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()


def _parse(
    message: ReceivedMessage, prefixes: tuple[str, ...], spiders: SpiderOptions = MappingProxyType({})
) -> ParsedMessage:
    try:
        content = None
        if len(message.body) <= MAX_REQUEST_BYTES:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                content = msgspec.json.decode(message.body)
        if not (isinstance(content, dict) and content.keys() & {"action", "stats", "uuid"}):
            return ParsedMessage(message, parse(message.body, spiders), "")
        reply_to = content.pop("reply", message.reply_to)
        if not isinstance(reply_to, str) or (reply_to and not _QUEUE_NAME.match(reply_to)):
            raise InvalidInput("reply must be 1 to 200 letters, digits or . _ : -.")
        # Senders are not authenticated, and a reply must not reach other data of the broker.
        if reply_to and not reply_to.startswith(prefixes):
            raise InvalidInput(
                f"reply must start with {' or '.join(prefixes)}; the operator of the bridge can allow more with "
                "?reply_prefix= in its source."
            )
        return ParsedMessage(message, parse(content), reply_to)
    except ShoalError as error:
        return ParsedMessage(message, str(error), "")


def _groups(messages: list[ParsedMessage]) -> Iterator[list[ParsedMessage]]:
    """Messages that can be handled concurrently: crawls with different names. An action is handled alone, in order."""
    group: list[ParsedMessage] = []
    names: set[str] = set()
    for parsed in messages:
        name = parsed.request.name if isinstance(parsed.request, CrawlRequest) else ""
        actions = (ClusterAction, StatsRequest)
        action = isinstance(parsed.request, actions) or (group and isinstance(group[-1].request, actions))
        if group and (action or (name and name in names)):
            yield group
            group, names = [], set()
        group.append(parsed)
        names.add(name)
    if group:
        yield group
