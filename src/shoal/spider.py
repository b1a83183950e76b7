"""What a user subclasses: a spider turns pages into items and says where to go on.

    class Books(shoal.Spider):
        def parse(self, page):
            for book in page.css("article.book"):
                yield {"title": book.css_first("h3").text(), "url": page.url}
            yield from page.follow("a.next")

Owns what spiders see and yield, and how one is found by its reference. Must not fetch, store or know the frontier: the
worker calls spiders and does what they ask for.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import ada_url
import msgspec

from shoal.errors import InvalidInput
from shoal.model import validation
from shoal.model.response import Response as Answer

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

One = TypeVar("One")

ENTRY_POINTS = "shoal.spiders"
_SHOWN = 80
# Where an element names another page.
_ATTRIBUTES = ("href", "src", "action")


class Follow(msgspec.Struct, frozen=True, kw_only=True):
    """A page to visit next. `callback` names the method that gets it, `data` comes along as `page.data`.

    A `url` that is not whole is relative to that of the page, whatever its `<base>`; in `start` it must be whole.

    With `spider`, another spider gets it: workers that have that one visit it, and this one's need not have it.
    """

    url: str
    callback: str = ""
    data: dict[str, Any] = {}
    priority: int | None = None
    spider: str = ""


class Spider:
    """A subclass has a `parse`; its name is that of the class, unless `name` says otherwise.

    Methods may be plain or `async`, and return or yield any number of items (dicts, dataclasses and the like) and
    follow-ups. One object serves all pages of a crawl in a worker process; what it keeps, the other processes do not
    see. An exception fails the page that raised it.
    """

    name: ClassVar[str] = ""
    urls: ClassVar[Iterable[str]] = ()

    def start(self) -> Any:
        """What to visit first: URLs or Follow. Not asked when URLs are given to the crawl."""
        return self.urls

    def parse(self, page: Page) -> Any:
        """A page whose visit names no other callback."""
        raise NotImplementedError(f"{type(self).__name__} has no method parse.")

    def failed(self, url: str, error: str) -> Any:
        """A URL that is given up, also by an exception of this spider; items may be yielded here, and no follow-ups."""


class Page:
    """A page as spiders see it."""

    __slots__ = ("_answer", "_base_url", "_markup", "_parsed", "_priority", "_tree", "data", "depth", "spider")

    def __init__(
        self, answer: Answer, *, parsed: Any, markup: Callable[[], bytes], tree: Callable[[bytes], LexborHTMLParser],
        depth: int, priority: int, data: dict[str, Any], spider: str,
    ) -> None:  # fmt: skip
        """`parsed` has title, text and links; `markup` gives the page in UTF-8, of which `tree` makes a tree."""
        self._answer = answer
        self._parsed = parsed
        self._markup: bytes | Callable[[], bytes] = markup
        self._tree: LexborHTMLParser | Callable[[bytes], LexborHTMLParser] = tree
        self._priority = priority
        self._base_url = ""
        self.depth = depth
        self.data = data
        self.spider = spider

    @property
    def url(self) -> str:
        return self._answer.url

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def body(self) -> bytes:
        """As it came, but for its content coding."""
        return self._answer.body

    @property
    def headers(self) -> dict[str, str]:
        """By their names in lower case; of several with one name the first."""
        return dict(reversed(self._answer.headers))

    @property
    def html(self) -> str:
        """The whole page as text, by the encoding that it or its server names."""
        return self._utf8().decode("utf-8", "replace")

    @property
    def title(self) -> str:
        return str(self._parsed.title)

    @property
    def text(self) -> str:
        """What a reader sees of an HTML page; the whole of any other text."""
        return str(self._parsed.text) or ("" if self._parsed.charset else self.html)

    @property
    def links(self) -> list[str]:
        """Where the page leads, in its order, each URL once."""
        return [link.url for link in self._parsed.links]

    def json(self) -> Any:
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError) as error:
            # Python's own, seldom needed, reads more: half a surrogate pair, which JavaScript may write, and UTF-16.
            import json

            with contextlib.suppress(ValueError, RecursionError):
                return json.loads(self.body)
            raise ValueError(f"{self.url} is not JSON: {error}") from None

    def css(self, selector: str) -> list[LexborNode]:
        """All elements that match."""
        return self._root().css(selector)

    def css_first(self, selector: str) -> LexborNode | None:
        return self._root().css_first(selector)

    @property
    def selector(self) -> Any:
        """A parsel Selector, for XPath and ::text."""
        try:
            from parsel import Selector
        except ModuleNotFoundError:
            raise InvalidInput("page.selector needs the package parsel; run: pip install 'shoal[parsel]'.") from None
        return Selector(text=self.html, base_url=self.url)

    def absolute(self, href: str) -> str:
        """A link of this page as a whole URL."""
        try:
            joined: str = ada_url.join_url(self._base(), href.strip())
        except (ValueError, UnicodeError):
            raise ValueError(f"{href[:_SHOWN]!r} on {self.url} is not a link.") from None
        return joined

    def visit(
        self, url: str, *, callback: str = "", data: Mapping[str, Any] | None = None, priority: int | None = None,
        spider: str = "",
    ) -> Follow:  # fmt: skip
        """One page to visit next, by its URL, which may be relative to this page."""
        own = self._priority if priority is None else priority
        return Follow(
            url=self.absolute(url), callback=callback, data=dict(data or {}), priority=own, spider=spider
        )  # fmt: skip

    def follow(
        self, css: str, *, callback: str = "", data: Mapping[str, Any] | None = None, priority: int | None = None,
        spider: str = "",
    ) -> Iterator[Follow]:  # fmt: skip
        """The pages that the elements lead to that match `css`. What is no link of the web is left out."""
        for node in self.css(css):
            attributes = node.attributes
            href = next((attributes[name] for name in _ATTRIBUTES if attributes.get(name)), None)
            if href is None:
                continue
            try:
                yield self.visit(href, callback=callback, data=data, priority=priority, spider=spider)
            except ValueError:
                continue

    def __repr__(self) -> str:
        return f"<Page {self.status} {self.url}>"

    def _utf8(self) -> bytes:
        if not isinstance(self._markup, bytes):
            self._markup = self._markup()
        return self._markup

    def _root(self) -> LexborHTMLParser:
        if callable(self._tree):
            self._tree = self._tree(self._utf8())
        return self._tree

    def _base(self) -> str:
        # Looked for once: a page may have as many links as elements to search.
        if not self._base_url:
            self._base_url = self.url
            base = self.css_first("base[href]")
            if base is not None and (href := base.attributes.get("href")):
                with contextlib.suppress(ValueError, UnicodeError):
                    self._base_url = ada_url.join_url(self.url, href)
        return self._base_url


def name_of(spider: type[Spider]) -> str:
    """What crawls and workers call it."""
    return validation.spider(spider.name or spider.__name__)


def unique(named: Iterable[tuple[str, One]]) -> dict[str, One]:
    """By their names; two that differ must not have the same one."""
    found: dict[str, One] = {}
    for name, one in named:
        if found.setdefault(name, one) != one:
            raise InvalidInput(f"Two spiders are called {name}, {found[name]} and {one}: give one another `name`.")
    return found


def load(reference: str) -> type[Spider]:
    """The class that FILE.py:Class or package.module:Class means. It runs the file: that is the user's own code."""
    where, _, name = reference.rpartition(":")
    if not where or not name.isidentifier():
        raise InvalidInput(f"The spider {reference!r} is none: write FILE.py:Class or package.module:Class.")
    try:
        module = _module(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except InvalidInput:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"The spider {reference} cannot be loaded: {_where(error, where)}.") from error
    found = getattr(module, name, None)
    if not (isinstance(found, type) and issubclass(found, Spider)):
        known = [one.__name__ for one in vars(module).values() if _is_spider(one, module.__name__)]
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise InvalidInput(f"There is no spider {name} in {where}; {has}. A spider is a subclass of shoal.Spider.")
    name_of(found)
    return found


def load_all(references: Mapping[str, str]) -> dict[str, type[Spider]]:
    """The classes of spiders that are known by these names."""
    return {validation.spider(name): load(reference) for name, reference in references.items()}


def installed() -> dict[str, str]:
    """The spiders that installed packages bring, as entry points: names and references."""
    # Loads much that workers, which are told what there is, do not need.
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}


def _module(path: Path) -> Any:
    path = path.resolve()
    if not path.is_file():
        raise InvalidInput(f"There is no file {path} to load a spider from.")
    # What lies beside it can be imported, as if the file itself were run.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    # By its path: a file called json.py must not take the place of a module that others use.
    spec = importlib.util.spec_from_file_location(str(path), path)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[str(path)] = module
    spec.loader.exec_module(module)
    return module


def _is_spider(found: object, module: str) -> bool:
    return isinstance(found, type) and issubclass(found, Spider) and found.__module__ == module


def _where(error: BaseException, where: str) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.msg} in line {error.lineno} of {error.filename}"
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(where):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}" + (f", in line {line} of {where}" if line else "")
