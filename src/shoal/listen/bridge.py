"""Requests from a source into a store: at least once, and the same crawl once, because its name is the key.

A message is done only after its crawl is stored, its action answered, or itself buried with the reason. Whatever fails
before that brings it again. A request without a name is named after its place in the source, so that it too is one
crawl when it comes again. Senders are not known here: what is for administrators they cannot ask for.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import time
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import msgspec

from shoal.errors import (
    InvalidInput,
    ShoalError,
    StoreCorrupt,
    StoreFull,
    StoreHeld,
    StoreRefused,
    StoreUnavailable,
    UnknownCrawl,
)
from shoal.frontier import Frontier
from shoal.listen.source import ReceivedMessage, Source, SourceUnavailable
from shoal.operations.events import Emit, tell_action
from shoal.operations.scrapy_cluster import Action, act
from shoal.operations.submit import MAX_REQUEST_BYTES, CrawlRequest, parse, submit, with_output
from shoal.sinks import is_name

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0
SAY_EVERY_SECONDS = 60.0
_PLACE = re.compile(r"[A-Za-z0-9._:-]{1,200}\Z")
# Of the store, and no fault of a message.
_STORE = (StoreUnavailable, StoreHeld, StoreFull)


class ParsedMessage(NamedTuple):
    """A message that was read: what it asks for, or the reason why it cannot; and where the answer should go."""

    message: ReceivedMessage
    asked: CrawlRequest | Action | str
    place: str


class Bridge:
    """`tell` gets what happens. `outputs` are those that the settings name."""

    def __init__(self, frontier: Frontier, source: Source, tell: Emit, outputs: Collection[str] = ()) -> None:
        self.crawls = self.answers = self.buried = 0
        self._frontier = frontier
        self._source = source
        self._tell = tell
        self._outputs = outputs
        self._stop = asyncio.Event()
        self._said_mono: float | None = None

    def stop(self) -> None:
        """End after the messages that are in hand."""
        self._stop.set()

    async def run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        try:
            while not self._stop.is_set():
                try:
                    await self._source.open()
                    while not self._stop.is_set():
                        await self._turn()
                        pause = FIRST_PAUSE_SECONDS
                        self._well()
                except SourceUnavailable as away:
                    self._trouble(f"source {self._source.shown} {away}; waiting")
                except _STORE as error:
                    self._trouble(str(error))
                await self._source.close()
                await self._rest(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        finally:
            await self._source.close()

    async def _turn(self) -> None:
        handled: list[ReceivedMessage] = []
        try:
            for run in _runs([_read(message) for message in await self._source.take()]):
                outcomes = await asyncio.gather(*map(self._outcome, run), return_exceptions=True)
                for letter, outcome in zip(run, outcomes, strict=True):
                    if isinstance(outcome, BaseException):
                        raise outcome
                    await self._finish(letter, outcome)
                    handled.append(letter.message)
        finally:
            # Those before one that failed, or they would be buried again and again while the store is away. None that
            # is behind it: a source may know only how far it was read.
            if handled:
                await self._source.done(handled)

    async def _outcome(self, letter: ParsedMessage) -> dict[str, Any] | str:
        """The answer, empty when none is due, or the reason why it cannot be used."""
        try:
            if isinstance(letter.asked, str):
                return letter.asked
            if isinstance(letter.asked, Action):
                return await self._act(letter.asked)
            await self._submit(letter.asked, letter.message)
            return {}
        except (*_STORE, StoreRefused, StoreCorrupt):
            raise
        except ShoalError as error:
            return str(error)
        except Exception as error:
            return f"This is a defect of Shoal: {type(error).__name__}: {error}."

    async def _finish(self, letter: ParsedMessage, outcome: dict[str, Any] | str) -> None:
        if isinstance(outcome, str):
            await self._source.bury(letter.message, outcome)
            self.buried += 1
            self._refused(letter.asked, outcome)
        elif outcome:
            await self._source.answer(letter.message, letter.place, msgspec.json.encode(outcome))
            self.answers += 1

    async def _submit(self, request: CrawlRequest, message: ReceivedMessage) -> None:
        if request.ignore_robots:
            raise InvalidInput(
                "The request sets ignore_robots: only an administrator of the store can, by the command."
            )
        if request.files or not all(map(is_name, request.outputs)):
            # Without what was sent: it may hold a password.
            raise InvalidInput("An output is not the name of one in [outputs]: only an administrator can give others.")
        request = with_output(request, self._outputs, as_in='"outputs": ["NAME"] in the request')
        if not request.name and message.id:
            request = msgspec.structs.replace(request, name=_name(message))
        submitted = await submit(self._frontier, request)
        self.crawls += submitted.created
        self._tell(
            f"crawl {submitted.id} was submitted{'' if submitted.created else ' again'}", event="crawl.submitted",
            crawl=submitted.id, app=request.app, seeds=len(request.seeds), source=self._source.shown,
            created=submitted.created,
        )  # fmt: skip

    async def _act(self, action: Action) -> dict[str, Any]:
        try:
            answer = await act(self._frontier, action)
            await tell_action(self._tell, self._frontier, action, source=self._source.shown)
            return answer
        except (UnknownCrawl, InvalidInput) as error:
            self._refused(action, str(error))
            return {**msgspec.to_builtins(action), "error": str(error)}

    def _refused(self, asked: CrawlRequest | Action | str, why: str) -> None:
        crawl = app = ""
        if isinstance(asked, CrawlRequest):
            crawl, app = asked.name, asked.app
        elif isinstance(asked, Action):
            crawl, app = asked.crawlid or "", asked.appid
        text = f"a request was refused: {why}"
        self._tell(text, event="request.refused", crawl=crawl, app=app, source=self._source.shown)

    def _trouble(self, sentence: str) -> None:
        now = time.monotonic()
        if self._said_mono is None or now - self._said_mono >= SAY_EVERY_SECONDS:
            self._said_mono = now
            self._tell(sentence, event="listen.trouble")

    def _well(self) -> None:
        if self._said_mono is not None:
            self._said_mono = None
            self._tell(f"source {self._source.shown} is heard again", event="listen.well")

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()


def _read(message: ReceivedMessage) -> ParsedMessage:
    try:
        place = message.reply
        asked = None
        if len(message.body) <= MAX_REQUEST_BYTES:
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                asked = msgspec.json.decode(message.body)
        if not (isinstance(asked, dict) and "action" in asked and "reply" in asked):
            return ParsedMessage(message, parse(message.body), place)
        place = asked.pop("reply")
        if not isinstance(place, str) or not _PLACE.match(place):
            raise InvalidInput("reply is not a name of 1 to 200 letters, digits and . _ : -.")
        return ParsedMessage(message, parse(asked), place)
    except ShoalError as error:
        return ParsedMessage(message, str(error), "")


def _runs(letters: list[ParsedMessage]) -> Iterator[list[ParsedMessage]]:
    """Letters that can be handled at once: crawls of different names. An action comes after what came before it."""
    run: list[ParsedMessage] = []
    names: set[str] = set()
    for letter in letters:
        name = letter.asked.name if isinstance(letter.asked, CrawlRequest) else ""
        if run and (isinstance(letter.asked, Action) or isinstance(run[-1].asked, Action) or (name and name in names)):
            yield run
            run, names = [], set()
        run.append(letter)
        names.add(name)
    if run:
        yield run


def _name(message: ReceivedMessage) -> str:
    """The same whenever the message comes; another where a topic was made anew and counts from the beginning."""
    place = re.sub(r"[^A-Za-z0-9_.-]", "-", message.id)[-100:].lstrip("-.")
    return f"{place}-{hashlib.sha256(message.body).hexdigest()[:10]}"
