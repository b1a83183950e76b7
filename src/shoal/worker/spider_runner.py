"""Runs the spiders of a worker: which it has, how they are called, what they may yield.

A spider is user code, so whatever it raises fails its page and nothing else. While it runs, the crash marker names its
page.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import sys
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shoal.errors import InvalidInput, InvalidVisit, ShoalError
from shoal.frontier import mono
from shoal.frontier.visit_codec import MAX_EXTENSION_BYTES
from shoal.model.record import Item
from shoal.model.response import Response as Answer
from shoal.model.visit import Visit, VisitMeta, pass_variant
from shoal.parse.html import Parsed, markup_of, tree_of
from shoal.sinks.columns import plain
from shoal.spider import Follow, Page, Spider, create
from shoal.spider.follow import ready
from shoal.urls.canonical import canonical

# Limits per page: a spider that yields more probably never stops.
_MOST_YIELDED = 100_000
_MOST_BYTES = 16_000_000
# The longest time that a method may wait for something.
_MOST_SECONDS = 600.0
# Room in a visit beside its data: the name of a method, and the first redirects.
_BESIDE_DATA = 1024
_MOST_TRACE = 10_000
# Spider objects kept, one per crawl; the one unused for longest is dropped.
_MOST_SPIDERS = 256
_MOST_CLOSE_SECONDS = 30.0
_NO_ARGUMENTS: Mapping[str, str] = {}
# Also exceptions that end a program or a task: if a spider raises one, only its page fails.
_RAISED = (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError)
# Frames of these files are left out of tracebacks.
_OURS = str(Path(__file__).parent)
_encode = msgspec.json.Encoder().encode


class SpiderFailed(Exception):
    """The spider failed on its page. `reason` is short and counted, `trace` is for the author of the spider."""

    def __init__(self, reason: str, trace: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.trace = trace


class Yielded(NamedTuple):
    items: tuple[Item, ...] = ()
    follows: tuple[Follow, ...] = ()
    size: int = 0


# Awaits the work of a spider with the crash marker set.
Run = Callable[[Coroutine[Any, Any, Yielded]], Awaitable[Yielded]]


class SpiderRunner:
    """`classes` are by name; a worker that also serves crawls without a spider has None for ''."""

    def __init__(self, classes: Mapping[str, type[Spider] | None]) -> None:
        self._classes = dict(classes)
        # By spider and crawl, each with the time of its last call.
        self._spiders: dict[tuple[str, str], tuple[Spider, float]] = {}
        # Calls that have not returned, by spider and crawl.
        self._open: Counter[tuple[str, str]] = Counter()
        self._printed: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._classes)

    async def read(
        self, name: str, crawl: str, answer: Answer, parsed: Parsed, visit: Visit, run: Run,
        arguments: Mapping[str, str] = _NO_ARGUMENTS,
    ) -> Yielded:  # fmt: skip
        """Call the method that the visit names with its page. `arguments` are those of the crawl."""
        notes = visit.notes
        page = Page(
            answer, parsed=parsed, markup=lambda: markup_of(answer.body, answer.header("content-type")), tree=tree_of,
            depth=visit.depth, priority=visit.priority, data=notes.data, spider=name,
        )  # fmt: skip
        callback = notes.callback or "parse"
        await self._spider(name, crawl, arguments)
        return await self._call(name, crawl, callback, (page,), visit.record_url, answer.started_at, run)

    async def failed(
        self, name: str, crawl: str, visit: Visit, error: str, at: float, run: Run,
        arguments: Mapping[str, str] = _NO_ARGUMENTS,
    ) -> Yielded:  # fmt: skip
        """Notify a spider that a URL has failed."""
        if type(await self._spider(name, crawl, arguments)).failed is Spider.failed:
            return Yielded()
        yielded = await self._call(name, crawl, "failed", (visit.url, error), visit.record_url, at, run)
        if yielded.follows:
            text = f"Spider {name}: the follow-ups of failed() are ignored; only methods that take a page have them."
            self._print_once(f"{name} failed", text)
        return yielded

    def check_has(self, name: str) -> None:
        """Raise SpiderFailed for a spider that no worker has: its pages would wait without end."""
        if name not in self._classes:
            text = f"A page was sent to the unknown spider {name}: pass spiders=[{name}] to shoal.crawl."
            self._print_once(name, text)
            raise SpiderFailed(f"spider: {name} is unknown"[:60], text)

    async def _call(
        self, name: str, crawl: str, callback: str, args: tuple[Any, ...], url: str, at: float,
        run: Run,
    ) -> Yielded:  # fmt: skip
        spider, _ = self._spiders[name, crawl]
        # The name comes from the store: only public methods of the spider can be called by it.
        method = None if callback.startswith("_") else getattr(spider, callback, None)
        if not inspect.ismethod(method):
            raise SpiderFailed(f"spider: no method {callback}"[:60])
        work = _collect(method, args, name=name, crawl=crawl, url=url, at=at)
        self._open[name, crawl] += 1
        try:
            async with asyncio.timeout(_MOST_SECONDS):
                return await run(work)
        except SpiderFailed as error:
            self._print_once(f"{name} {callback} {error.reason}", f"Spider {name}: {error.trace}")
            raise
        except _RAISED as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            raise SpiderFailed(f"spider: {type(error).__name__}", self._trace(name, error)) from error
        finally:
            self._open[name, crawl] -= 1

    async def close(self, state: Callable[[str], Awaitable[str]], *, idle_seconds: float = 0.0) -> None:
        """Call `closed` of the spiders that are needed no more. `state` returns the state of a crawl, '' if it runs.

        With `idle_seconds`, only of those that were idle for that time and whose crawl has ended; without, of all.
        """
        for (name, crawl), (spider, used_mono) in list(self._spiders.items()):
            if idle_seconds and (self._open[name, crawl] or mono() - used_mono < idle_seconds):
                continue
            if not (reason := await state(crawl)) and idle_seconds:
                continue
            self._spiders.pop((name, crawl), None)
            await self._close(name, spider, reason or "running")

    async def _close(self, name: str, spider: Spider, reason: str) -> None:
        try:
            async with asyncio.timeout(_MOST_CLOSE_SECONDS):
                result = spider.closed(reason)
                if inspect.isawaitable(result):
                    await result
        except _RAISED as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            self._trace(name, error)

    async def _spider(self, name: str, crawl: str, arguments: Mapping[str, str]) -> Spider:
        spider, _ = self._spiders.pop((name, crawl), (None, 0.0))
        if spider is None:
            kind = self._classes.get(name)
            if kind is None:
                raise SpiderFailed(f"spider: {name} is unknown"[:60])
            if len(self._spiders) >= _MOST_SPIDERS:
                oldest = next((key for key in self._spiders if not self._open[key]), None)
                if oldest is not None:
                    await self._close(oldest[0], self._spiders.pop(oldest)[0], "running")
            try:
                spider = create(kind, arguments)
            except _RAISED as error:
                raise SpiderFailed(f"spider: {type(error).__name__}", self._trace(name, error)) from error
        self._spiders[name, crawl] = (spider, mono())
        return spider

    def _trace(self, name: str, error: BaseException) -> str:
        """The user's part of the traceback. It is also printed, once for each line of code."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(_OURS)]
        head = ["Traceback (most recent call last):\n", *traceback.format_list(own)] if own else []
        trace = "".join([*head, *_last(error)]).rstrip()
        if len(trace) > _MOST_TRACE:
            trace = f"{trace[: _MOST_TRACE // 2]}\n...\n{trace[-_MOST_TRACE // 2 :]}"
        line = f"{own[-1].filename} {own[-1].lineno}" if own else str(error)[:40]
        key = f"{name} {type(error).__name__} {line}"
        self._print_once(key, f"Spider {name} failed; this message is not repeated for other pages.\n{trace}")
        return trace

    def _print_once(self, key: str, text: str) -> None:
        if key not in self._printed and len(self._printed) < 100:
            self._printed.add(key)
            print(text, file=sys.stderr, flush=True)


async def first_visits(kind: type[Spider], arguments: Mapping[str, str] = _NO_ARGUMENTS) -> list[Visit]:
    """The visits that a spider starts with. Raises InvalidInput if there are none, or an invalid one."""
    visits: list[Visit] = []
    try:
        async for start in _each(create(kind, arguments).start()):
            first = Follow(url=start) if isinstance(start, str) else start
            if not isinstance(first, Follow):
                raise InvalidInput(
                    f"start of {kind.__name__} yields {type(start).__name__}: yield URLs or shoal.Follow."
                )
            first, _ = _carried(first)
            if first.spider:
                raise InvalidInput(f"start of {kind.__name__} names a spider; only methods that take a page may do so.")
            url, priority = canonical(first.url).url, first.priority or 0
            index = len(visits)
            visits.append(visit_of(first, url, depth=0, priority=priority, found="seed", parent="start", index=index))
            if len(visits) > _MOST_YIELDED:
                raise InvalidInput(f"start of {kind.__name__} yields over {_MOST_YIELDED:,} URLs; use a seeds file.")
    except ShoalError:
        raise
    except Exception as error:
        raise InvalidInput(f"start of {kind.__name__} failed: {type(error).__name__}: {error}.") from error
    if not visits:
        raise InvalidInput(f"Spider {kind.__name__} has no start URL; set its `urls`, or pass a URL to the crawl.")
    return visits


def visit_of(
    follow: Follow, url: str, *, depth: int, priority: int, found: str = "spider", parent: str = "", index: int = 0,
    pass_number: int = 0,
) -> Visit:  # fmt: skip
    """The visit of a follow-up that was prepared. It is number `index` of the follow-ups that `parent` yielded."""
    variant = pass_variant(pass_number)
    if follow.dont_filter:
        # The same when the page is read again after a crash: then the visit is made once.
        variant = hashlib.blake2s(f"{index} {parent}".encode(), digest_size=8).hexdigest()
    meta = VisitMeta(
        callback=follow.callback, data=dict(follow.data), cookies=dict(follow.cookies), variant=variant,
        pass_number=pass_number,
    ).pack()  # fmt: skip
    return Visit(
        url=url, depth=depth, priority=priority, found=found, method=follow.method or "GET",
        headers=dict(follow.headers), body=bytes(follow.body) if isinstance(follow.body, bytes) else b"", meta=meta,
    )  # fmt: skip


async def _collect(
    method: Callable[..., Any], args: tuple[Any, ...], *, name: str, crawl: str, url: str, at: float
) -> Yielded:
    items: list[Item] = []
    follows: list[Follow] = []
    size = 0
    pipelines = tuple(getattr(getattr(method, "__self__", None), "pipelines", ()))
    result = method(*args)
    async for value in _each(result):
        try:
            if isinstance(value, Follow):
                follow, more = _carried(value)
                follows.append(follow)
                size += more
            elif (value := await _through(pipelines, value)) is not None:
                data, more = _item_data(value)
                items.append(Item(crawl=crawl, url=url, spider=name, number=len(items) + 1, fetched_at=at, data=data))
                size += more
        except InvalidInput as error:
            # Its traceback has no line of the user's code.
            raise type(error)(f"{error} It came from {_location(method, result)}.") from None
        if len(items) + len(follows) > _MOST_YIELDED or size > _MOST_BYTES:
            most = f"{_MOST_YIELDED:,} values and {_MOST_BYTES // 1_000_000} MB"
            text = f"{_location(method, result)} yields too much: the limit per page is {most}."
            raise SpiderFailed("spider: yields too much", text)
    return Yielded(tuple(items), tuple(follows), size)


async def _through(pipelines: tuple[Callable[[Any], Any], ...], item: Any) -> Any:
    """The item after all pipelines; None if one of them has dropped it."""
    for pipeline in pipelines:
        item = pipeline(item)
        if inspect.isawaitable(item):
            item = await item
        if item is None:
            break
    return item


def _carried(follow: Follow) -> tuple[Follow, int]:
    """A follow-up as the store keeps it, detached from the spider's objects, and the size of what it carries."""
    follow = ready(follow)
    if not follow.data and not follow.callback and follow.method == "GET" and not follow.headers and not follow.cookies:
        return follow, len(follow.body)
    where = f"a follow-up to {follow.url[:80]!r}"
    try:
        packed = _pack(follow.data)
        data = msgspec.msgpack.decode(packed)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidVisit(f"data of {where} cannot be stored: {error}.") from None
    if not isinstance(data, dict):
        raise InvalidVisit(f"data of {where} is of type {type(data).__name__}: use a dict.")
    size = len(packed) + len(_pack((follow.callback, follow.method, follow.headers, follow.cookies, follow.body)))
    if size > MAX_EXTENSION_BYTES - _BESIDE_DATA:
        raise InvalidVisit(
            f"The data, body, headers and cookies of {where} have {size} bytes: the limit is about 48,000."
        )
    return msgspec.structs.replace(follow, data=data), size


async def _each(result: Any) -> AsyncIterator[Any]:
    """The values a method returned or yielded: none, one, a list, or those of a generator of either kind."""
    if inspect.isawaitable(result):
        result = await result
    if result is None:
        return
    if inspect.isasyncgen(result) or hasattr(result, "__aiter__"):
        async for value in result:
            if value is not None:
                yield value
    elif isinstance(result, Mapping | Follow | str) or not hasattr(result, "__iter__"):
        yield result
    else:
        for value in result:
            if value is not None:
                yield value


def _location(method: Callable[..., Any], result: Any) -> str:
    """The method, and the line of its last `yield`."""
    frame = getattr(result, "gi_frame", None) or getattr(result, "ag_frame", None)
    return method.__qualname__ + (f", line {frame.f_lineno}" if frame is not None else "")


def _item_data(value: Any) -> tuple[dict[str, Any], int]:
    """An item as JSON can carry it, and its size."""
    if inspect.isgenerator(value):
        raise InvalidInput("A spider yielded a generator: write `yield from`, e.g. `yield from page.follow(...)`.")
    try:
        data = msgspec.to_builtins(value, str_keys=True, enc_hook=_other)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"An item of type {type(value).__name__} cannot be stored: {error}.") from None
    if not isinstance(data, dict):
        raise InvalidInput(
            f"A spider yielded {type(value).__name__}: yield dicts, dataclasses or the results of page.follow."
        )
    try:
        return data, len(_encode(data))
    except UnicodeEncodeError:
        # Half a surrogate pair, which JSON and JavaScript allow. It is rare, so the check comes last.
        data = plain(data)
        return data, len(_encode(data))


def _other(value: Any) -> Any:
    """Convert values that msgspec does not know: models of other libraries, numpy values and the like."""
    for name in ("model_dump", "to_dict", "item", "isoformat"):
        method = getattr(value, name, None)
        if callable(method):
            return method()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a plain value")


_pack = msgspec.msgpack.Encoder(enc_hook=_other).encode


def _last(error: BaseException) -> list[str]:
    return traceback.format_exception_only(error)


def _is_cancelled() -> bool:
    """Whether this task itself is cancelled; otherwise it is something that the spider waited for."""
    task = asyncio.current_task()
    return task is None or bool(task.cancelling())
