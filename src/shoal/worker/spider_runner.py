"""A worker's spiders: which it has, how they are called, and what becomes of what they yield.

A spider is the user's code, so whatever it raises fails its page and nothing else. While it runs, its page is to blame
for the end of this process, also when it waits for something in between.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shoal.errors import InvalidInput, InvalidVisit, ShoalError
from shoal.frontier.visit_codec import MAX_EXTENSION_BYTES
from shoal.model import validation
from shoal.model.record import Item
from shoal.model.response import Response as Answer
from shoal.model.visit import Visit
from shoal.parse.html import Parsed, markup_of, tree_of
from shoal.sinks.columns import plain
from shoal.spider import Follow, Page, Spider
from shoal.urls.canonical import canonical

# Of one page: more than these is a spider that does not end.
_MOST_YIELDED = 100_000
_MOST_BYTES = 16_000_000
# A method that waits for longer than this waits for something that does not come.
_MOST_SECONDS = 600.0
# What a visit carries beyond its data: the name of a method, and the first redirects.
_BESIDE_DATA = 1024
_MOST_TRACE = 10_000
# Crawls that have an object of their spider here; that of the one met longest ago is given up.
_MOST_MADE = 256
# What ends a program, or a task, is raised by a spider as any other exception is.
_RAISED = (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError)
# Of a traceback only the rest is the user's.
_OURS = str(Path(__file__).parent)
_encode = msgspec.json.Encoder().encode


class SpiderFailed(Exception):
    """The spider could not read its page. `reason` is short and counted, `trace` is for whoever wrote the spider."""

    def __init__(self, reason: str, trace: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.trace = trace


class Yielded(NamedTuple):
    items: tuple[Item, ...] = ()
    follows: tuple[Follow, ...] = ()
    size: int = 0


# How a spider's work is awaited: by whoever notes which page is to blame for it.
Run = Callable[[Coroutine[Any, Any, Yielded]], Awaitable[Yielded]]


class SpiderRunner:
    """`known` are the classes by their names; a worker that serves crawls without a spider, too, has None for ''."""

    def __init__(self, known: Mapping[str, type[Spider] | None]) -> None:
        self._known = dict(known)
        self._made: dict[tuple[str, str], Spider] = {}
        self._told: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._known)

    async def read(self, name: str, crawl: str, answer: Answer, parsed: Parsed, visit: Visit, run: Run) -> Yielded:
        """Give a page to the method its visit names."""
        meta = visit.meta
        data, callback = meta.get("data"), meta.get("callback") or "parse"
        page = Page(
            answer, parsed=parsed, markup=lambda: markup_of(answer.body, answer.header("content-type")), tree=tree_of,
            depth=visit.depth, priority=visit.priority, data=data if isinstance(data, dict) else {}, spider=name,
        )  # fmt: skip
        return await self._call(name, crawl, str(callback), (page,), answer.url, answer.started_at, run)

    async def failed(self, name: str, crawl: str, url: str, error: str, at: float, run: Run) -> Yielded:
        """Tell a spider that a URL is given up."""
        if type(self._spider(name, crawl)).failed is Spider.failed:
            return Yielded()
        yielded = await self._call(name, crawl, "failed", (url, error), url, at, run)
        if yielded.follows:
            text = f"Spider {name}: failed gives pages to visit, which are left out: only methods that read pages may."
            self._tell(f"{name} failed", text)
        return yielded

    def check_has(self, name: str) -> None:
        """Pages that are sent to a spider which nobody will ever have would wait for ever."""
        if name not in self._known:
            text = f"Pages are sent to spider {name}, which is not here: give it to shoal.crawl by spiders=[{name}]."
            self._tell(name, text)
            raise SpiderFailed(f"spider: {name} is not here"[:60], text)

    async def _call(
        self, name: str, crawl: str, callback: str, args: tuple[Any, ...], url: str, at: float,
        run: Run,
    ) -> Yielded:  # fmt: skip
        spider = self._spider(name, crawl)
        # The name comes out of the store: only what the spider's author wrote can be called by it.
        method = None if callback.startswith("_") else getattr(spider, callback, None)
        if not inspect.ismethod(method):
            raise SpiderFailed(f"spider: no method {callback}"[:60])
        gathering = _gathered(method, args, name=name, crawl=crawl, url=url, at=at)
        try:
            async with asyncio.timeout(_MOST_SECONDS):
                return await run(gathering)
        except SpiderFailed as error:
            self._tell(f"{name} {callback} {error.reason}", f"Spider {name}: {error.trace}")
            raise
        except _RAISED as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            raise SpiderFailed(f"spider: {type(error).__name__}", self._trace(name, error)) from error

    def _spider(self, name: str, crawl: str) -> Spider:
        made = self._made.pop((name, crawl), None)
        if made is None:
            kind = self._known.get(name)
            if kind is None:
                raise SpiderFailed("spider: not here")
            try:
                made = kind()
            except _RAISED as error:
                raise SpiderFailed(f"spider: {type(error).__name__}", self._trace(name, error)) from error
            if len(self._made) >= _MOST_MADE:
                del self._made[next(iter(self._made))]
        self._made[name, crawl] = made
        return made

    def _trace(self, name: str, error: BaseException) -> str:
        """The user's part of the traceback. It is also said once for each place, for whoever looks at the screen."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(_OURS)]
        head = ["Traceback (most recent call last):\n", *traceback.format_list(own)] if own else []
        trace = "".join([*head, *_last(error)]).rstrip()
        if len(trace) > _MOST_TRACE:
            trace = f"{trace[: _MOST_TRACE // 2]}\n...\n{trace[-_MOST_TRACE // 2 :]}"
        line = f"{own[-1].filename} {own[-1].lineno}" if own else str(error)[:40]
        place = f"{name} {type(error).__name__} {line}"
        self._tell(place, f"Spider {name} failed; pages like it fail without a further word.\n{trace}")
        return trace

    def _tell(self, place: str, text: str) -> None:
        if place not in self._told and len(self._told) < 100:
            self._told.add(place)
            print(text, file=sys.stderr, flush=True)


async def first_visits(kind: type[Spider]) -> list[Visit]:
    """Where a spider starts. InvalidInput in one sentence for what it cannot start from."""
    found: list[Visit] = []
    try:
        async for one in _each(kind().start()):
            first = Follow(url=one) if isinstance(one, str) else one
            if not isinstance(first, Follow):
                raise InvalidInput(f"start of {kind.__name__} gives {type(one).__name__}: give URLs or shoal.Follow.")
            first, _ = _carried(first)
            if first.spider:
                raise InvalidInput(f"start of {kind.__name__} names a spider; only methods that read pages may do so.")
            found.append(visit_of(first, canonical(first.url).url, depth=0, priority=first.priority or 0, found="seed"))
            if len(found) > _MOST_YIELDED:
                raise InvalidInput(f"start of {kind.__name__} gives over {_MOST_YIELDED:,} URLs; use a seeds file.")
    except ShoalError:
        raise
    except Exception as error:
        raise InvalidInput(f"start of {kind.__name__} failed: {type(error).__name__}: {error}.") from error
    if not found:
        raise InvalidInput(f"Spider {kind.__name__} has nothing to start from; give it `urls`, or the crawl a URL.")
    return found


def visit_of(follow: Follow, url: str, *, depth: int, priority: int, found: str = "spider") -> Visit:
    """The visit that a follow-up asks for."""
    meta: dict[str, Any] = {}
    if follow.callback:
        meta["callback"] = follow.callback
    if follow.data:
        meta["data"] = follow.data
    return Visit(url=url, depth=depth, priority=priority, found=found, meta=meta)


async def _gathered(
    method: Callable[..., Any], args: tuple[Any, ...], *, name: str, crawl: str, url: str, at: float
) -> Yielded:
    items: list[Item] = []
    follows: list[Follow] = []
    size = 0
    made = method(*args)
    async for one in _each(made):
        try:
            if isinstance(one, Follow):
                follow, more = _carried(one)
                follows.append(follow)
                size += more
            else:
                data, more = _plain(one)
                items.append(Item(crawl=crawl, url=url, spider=name, number=len(items) + 1, fetched_at=at, data=data))
                size += more
        except InvalidInput as error:
            # No line of the user's raised it.
            raise type(error)(f"{error} It came from {_place(method, made)}.") from None
        if len(items) + len(follows) > _MOST_YIELDED or size > _MOST_BYTES:
            most = f"{_MOST_YIELDED:,} things and {_MOST_BYTES // 1_000_000} MB"
            text = f"{_place(method, made)} yields too much: of one page it may be {most}."
            raise SpiderFailed("spider: yields too much", text)
    return Yielded(tuple(items), tuple(follows), size)


def _carried(follow: Follow) -> tuple[Follow, int]:
    """A follow-up as the store can hold it, and the size of its data; what the spider does later is not ours."""
    for name in ("url", "callback", "spider"):
        if not isinstance(value := getattr(follow, name), str):
            raise InvalidVisit(f"{name} of a follow-up is of type {type(value).__name__}: it must be text, a name.")
    validation.spider(follow.spider)
    if follow.priority is not None:
        validation.whole("priority", follow.priority, 1 - validation.WIDEST, validation.WIDEST - 1)
    if not follow.data and not follow.callback:
        return follow, 0
    try:
        packed = _pack(follow.data)
        data = msgspec.msgpack.decode(packed)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidVisit(f"data of a follow-up to {follow.url[:80]!r} cannot be stored: {error}.") from None
    if not isinstance(data, dict):
        raise InvalidVisit(f"data of a follow-up to {follow.url[:80]!r} is of type {type(data).__name__}: use a dict.")
    size = len(packed) + len(follow.callback.encode())
    if size > MAX_EXTENSION_BYTES - _BESIDE_DATA:
        raise InvalidVisit(f"data of a follow-up to {follow.url[:80]!r} has {size} bytes: it may have about 48,000.")
    return msgspec.structs.replace(follow, data=data), size


async def _each(made: Any) -> AsyncIterator[Any]:
    """Whatever a method gave: nothing, one thing, some, or a generator of either kind."""
    if inspect.isawaitable(made):
        made = await made
    if made is None:
        return
    if inspect.isasyncgen(made) or hasattr(made, "__aiter__"):
        async for one in made:
            if one is not None:
                yield one
    elif isinstance(made, Mapping | Follow | str) or not hasattr(made, "__iter__"):
        yield made
    else:
        for one in made:
            if one is not None:
                yield one


def _place(method: Callable[..., Any], made: Any) -> str:
    """The method, and its line where it waits for us to take what it yielded."""
    frame = getattr(made, "gi_frame", None) or getattr(made, "ag_frame", None)
    return method.__qualname__ + (f", line {frame.f_lineno}" if frame is not None else "")


def _plain(one: Any) -> tuple[dict[str, Any], int]:
    """An item as JSON can carry it, and its size."""
    if inspect.isgenerator(one):
        raise InvalidInput("A spider yielded a generator: write `yield from`, as in `yield from page.follow(...)`.")
    try:
        data = msgspec.to_builtins(one, str_keys=True, enc_hook=_other)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"An item of type {type(one).__name__} cannot be stored: {error}.") from None
    if not isinstance(data, dict):
        raise InvalidInput(
            f"A spider yielded {type(one).__name__}: it may yield dicts, dataclasses and what page.follow gives."
        )
    try:
        return data, len(_encode(data))
    except UnicodeEncodeError:
        # Half a surrogate pair, as JSON and JavaScript may have it. Rare, so nobody else pays for it.
        data = plain(data)
        return data, len(_encode(data))


def _other(value: Any) -> Any:
    """What msgspec does not know: models of other libraries, values of numpy and the like."""
    for name in ("model_dump", "to_dict", "item", "isoformat"):
        method = getattr(value, name, None)
        if callable(method):
            return method()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no plain value")


_pack = msgspec.msgpack.Encoder(enc_hook=_other).encode


def _last(error: BaseException) -> list[str]:
    return traceback.format_exception_only(error)


def _is_cancelled() -> bool:
    """Whether the holder itself is told to end; else what a spider waited for was cancelled."""
    task = asyncio.current_task()
    return task is None or bool(task.cancelling())
