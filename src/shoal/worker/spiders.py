"""A worker's spiders: which it has, how they are called, and what becomes of what they yield.

A spider is the user's code, so whatever it raises fails its page and nothing else. While it runs, its page is to blame
for the end of this process, also when it waits for something in between.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shoal.errors import InvalidInput, ShoalError
from shoal.model.page import Page as Answer
from shoal.model.record import Item
from shoal.model.visit import Visit
from shoal.parse.html import Parsed, markup_of, tree_of
from shoal.spider import Follow, Page, Spider
from shoal.urls.canonical import canonical

# Of one page: more than these is a spider that does not end.
_MOST_YIELDED = 100_000
_MOST_ITEM_BYTES = 16_000_000
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


# How a spider's work is awaited: by whoever notes which page is to blame for it.
Run = Callable[[Coroutine[Any, Any, Yielded]], Awaitable[Yielded]]


class Spiders:
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
        return await self._call(name, crawl, "failed", (url, error), url, at, run)

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
            return await run(gathering)
        except SpiderFailed:
            raise
        except Exception as error:
            raise SpiderFailed(f"spider: {type(error).__name__}", self._trace(name, error)) from error

    def _spider(self, name: str, crawl: str) -> Spider:
        made = self._made.get((name, crawl))
        if made is None:
            kind = self._known.get(name)
            if kind is None:
                raise SpiderFailed("spider: not here")
            try:
                made = kind()
            except Exception as error:
                raise SpiderFailed(f"spider: {type(error).__name__}", self._trace(name, error)) from error
            self._made[name, crawl] = made
        return made

    def _trace(self, name: str, error: Exception) -> str:
        """The user's part of the traceback. It is also said once for each place, for whoever looks at the screen."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(_OURS)] or frames
        trace = "".join(
            ["Traceback (most recent call last):\n", *traceback.format_list(own), *_last(error)]
        ).rstrip()  # fmt: skip
        place = f"{name} {type(error).__name__} {own[-1].filename if own else ''} {own[-1].lineno if own else 0}"
        if place not in self._told and len(self._told) < 100:
            self._told.add(place)
            print(f"Spider {name} failed; pages like it fail without a further word.\n{trace}", file=sys.stderr)
            sys.stderr.flush()
        return trace


async def first_visits(kind: type[Spider]) -> list[Visit]:
    """Where a spider starts. InvalidInput in one sentence for what it cannot start from."""
    found: list[Visit] = []
    try:
        async for one in _each(kind().start()):
            first = Follow(url=one) if isinstance(one, str) else one
            if not isinstance(first, Follow):
                raise InvalidInput(f"start of {kind.__name__} gives {type(one).__name__}: give URLs or shoal.Follow.")
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
    async for one in _each(method(*args)):
        if isinstance(one, Follow):
            follows.append(one)
        else:
            data = _plain(one)
            size += len(_encode(data))
            items.append(Item(crawl=crawl, url=url, spider=name, number=len(items) + 1, fetched_at=at, data=data))
        if len(items) + len(follows) > _MOST_YIELDED or size > _MOST_ITEM_BYTES:
            raise SpiderFailed("spider: yields too much")
    return Yielded(tuple(items), tuple(follows))


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


def _plain(one: Any) -> dict[str, Any]:
    """An item as JSON can carry it."""
    try:
        data = msgspec.to_builtins(one, str_keys=True, enc_hook=_other)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"An item of type {type(one).__name__} cannot be stored: {error}.") from None
    if not isinstance(data, dict):
        raise InvalidInput(
            f"A spider yielded {type(one).__name__}: it may yield dicts, dataclasses and what page.follow gives."
        )
    return data


def _other(value: Any) -> Any:
    """What msgspec does not know: models of other libraries, values of numpy and the like."""
    for name in ("model_dump", "to_dict", "item", "isoformat"):
        method = getattr(value, name, None)
        if callable(method):
            return method()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no plain value")


def _last(error: Exception) -> list[str]:
    return traceback.format_exception_only(error)
