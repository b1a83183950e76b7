"""The base class of spiders: a spider turns pages into items and follow-ups.

    class Books(shoal.Spider):
        def parse(self, page):
            for book in page.css("article.book"):
                yield {"title": book.css_first("h3").text(), "url": page.url}
            yield from page.follow("a.next")

Owns what spiders see and yield, and how a reference is resolved to a class. Does not fetch, store or use the frontier:
the worker calls spiders and acts on what they yield.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import ada_url
import msgspec

from shoal.errors import InvalidInput
from shoal.model import validation
from shoal.model.response import Response
from shoal.spider import forms
from shoal.spider.follow import Fields, Follow, callback_name, with_query
from shoal.spider.forms import Form

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

Reference = TypeVar("Reference")

ENTRY_POINTS = "shoal.spiders"
_SHOWN = 80
# Attributes that link to another page.
_ATTRIBUTES = ("href", "src", "action")
# A target that starts with one of these is a URL: no selector starts like this.
_URL_STARTS = ("http://", "https://", "ftp://", "/", "?", "./", "../")

__all__ = [
    "ENTRY_POINTS", "Follow", "Form", "Page", "Spider", "check_arguments", "create", "installed", "load", "load_all",
    "name_of", "unique",
]  # fmt: skip


class Spider:
    """Subclass it and define `parse`. The spider's name is `name`, or else the name of the class.

    Methods may be plain or `async`, and may return or yield any number of items (e.g. dicts, dataclasses) and
    follow-ups. One object serves all pages of a crawl in a worker process; other processes have their own. An exception
    fails the page that raised it.
    """

    name: ClassVar[str] = ""
    urls: ClassVar[Iterable[str]] = ()
    # Options of its crawls, by the names of `shoal.crawl`, e.g. {"delay_seconds": 2}. Those of the crawl itself win.
    settings: ClassVar[Mapping[str, Any]] = {}
    # Functions that get each item in turn and return it, changed or not, or None to drop it.
    pipelines: ClassVar[Iterable[Callable[[Any], Any]]] = ()

    def __init__(self, **arguments: str) -> None:
        """Each argument of the crawl (`-a NAME=VALUE`) becomes an attribute. Called once in each worker process."""
        for name, value in arguments.items():
            setattr(self, name, value)

    def start(self) -> Any:
        """Return or yield the first URLs or Follows. Not called when the crawl is given URLs."""
        return self.urls

    def parse(self, page: Page) -> Any:
        """Handle a page whose follow-up names no other callback."""
        raise NotImplementedError(f"{type(self).__name__} has no method parse.")

    def failed(self, url: str, error: str) -> Any:
        """Handle a URL that failed, also by an exception of this spider. It may yield items, but no follow-ups."""

    def closed(self, reason: str) -> Any:
        """Clean up: this process serves the crawl no more. `reason` is the state of the crawl, e.g. finished.

        Called once for each spider object, i.e. in each worker process. It yields nothing. A process that is killed
        does not call it.
        """


class Page:
    """A fetched page."""

    __slots__ = ("_base_url", "_markup", "_parsed", "_priority", "_response", "_tree", "data", "depth", "spider")

    def __init__(
        self, response: Response, *, parsed: Any, markup: Callable[[], bytes],
        tree: Callable[[bytes], LexborHTMLParser], depth: int, priority: int, data: dict[str, Any], spider: str,
    ) -> None:  # fmt: skip
        """`parsed` has title, text and links. `markup` returns the page in UTF-8, and `tree` parses that."""
        self._response = response
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
        return self._response.url

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def body(self) -> bytes:
        """The response body, with its content coding removed."""
        return self._response.body

    @property
    def headers(self) -> dict[str, str]:
        """Values by lower-case name; the first value where a name is repeated."""
        return dict(reversed(self._response.headers))

    @property
    def html(self) -> str:
        """The whole page as text, decoded by the encoding that the page or its server declares."""
        return self._utf8().decode("utf-8", "replace")

    @property
    def title(self) -> str:
        return str(self._parsed.title)

    @property
    def text(self) -> str:
        """The visible text of an HTML page; the whole of any other text."""
        return str(self._parsed.text) or ("" if self._parsed.charset else self.html)

    @property
    def links(self) -> list[str]:
        """The URLs that the page links to, in order, without duplicates."""
        return [link.url for link in self._parsed.links]

    def json(self) -> Any:
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError) as error:
            # Python's own parser accepts more: UTF-16, and the lone surrogates that JavaScript may write.
            import json

            with contextlib.suppress(ValueError, RecursionError):
                return json.loads(self.body)
            raise ValueError(f"{self.url} is not JSON: {error}") from None

    def css(self, selector: str) -> list[LexborNode]:
        """All elements that match a selector."""
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
        """A link of this page as an absolute URL."""
        try:
            joined: str = ada_url.join_url(self._base(), href.strip())
        except (ValueError, UnicodeError):
            raise ValueError(f"{href[:_SHOWN]!r} on {self.url} is not a valid link.") from None
        return joined

    def visit(
        self, url: str, *, callback: Any = "", data: Mapping[str, Any] | None = None, priority: int | None = None,
        spider: str = "", method: str = "", headers: Mapping[str, str] | None = None,
        cookies: Mapping[str, str] | None = None, body: bytes | str = b"", form: Fields | None = None,
        json: Any = None, dont_filter: bool = False,
    ) -> Follow:  # fmt: skip
        """A follow-up for a URL, which may be relative to this page. `callback` is a method of the spider or its name.

        A request with `body`, `form` or `json` is a POST, unless `method` says otherwise. Requests of one URL that
        differ in method or body are different pages. `dont_filter` visits a page again.
        """
        own = self._priority if priority is None else priority
        return Follow(
            url=self.absolute(url), callback=callback_name(callback), data=dict(data or {}), priority=own,
            spider=spider, method=method, headers=dict(headers or {}), cookies=dict(cookies or {}), body=body,
            form=form, json=json, dont_filter=dont_filter,
        )  # fmt: skip

    def follow(self, target: str | LexborNode, **request: Any) -> Iterable[Follow]:
        """Follow-ups for the links of all elements that match a selector, with the arguments of `visit`.

        Invalid links are skipped. `target` may also be an element, or a URL that starts with http:, https:, /, ? or a
        dot and a slash: then there is one follow-up.
        """
        if not isinstance(target, str):
            return self._links_of([target], request)
        if target.lstrip().startswith(_URL_STARTS):
            return self.visit(target, **request)
        return self._links_of(self.css(target), request)

    def form(self, css: str = "form", *, button: str | bool | None = None) -> Form:
        """A form of the page as a browser would submit it: hidden fields, checked boxes, chosen options.

        `css` selects the form or an element in it. `button` selects the button that is pushed: by default the first
        one, with False none.
        """
        charset = str(self._parsed.charset) or "utf-8"
        return forms.read(self._root(), css, url=self.url, charset=charset, absolute=self.absolute, button=button)

    def submit(
        self, css: str = "form", fields: Mapping[str, Any] | None = None, *, button: str | bool | None = None,
        **request: Any,
    ) -> Follow:  # fmt: skip
        """Submit a form of the page, with other values for some of its fields, and with the arguments of `visit`.

        The page that the form leads to is visited even if the crawl has visited it before.
        """
        form = self.form(css, button=button).filled(fields or {})
        query, body, content_type = form.content()
        if form.method == "GET":
            return self.visit(with_query(form.action, query, replace=True), **request)
        headers = {"Content-Type": content_type, **(request.pop("headers", None) or {})}
        return self.visit(form.action, method="POST", body=body, headers=headers, **request)

    def _links_of(self, nodes: Iterable[LexborNode], request: dict[str, Any]) -> Iterator[Follow]:
        for node in nodes:
            attributes = node.attributes
            href = next((attributes[name] for name in _ATTRIBUTES if attributes.get(name)), None)
            if href is None:
                continue
            try:
                yield self.visit(href, **request)
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
        # Computed once: searching for <base> again for every link would be quadratic.
        if not self._base_url:
            self._base_url = self.url
            base = self.css_first("base[href]")
            if base is not None and (href := base.attributes.get("href")):
                with contextlib.suppress(ValueError, UnicodeError):
                    self._base_url = ada_url.join_url(self.url, href)
        return self._base_url


def name_of(spider: type[Spider]) -> str:
    """The name that crawls and workers use for a spider."""
    return validation.spider(spider.name or spider.__name__)


def create(kind: type[Spider], arguments: Mapping[str, str]) -> Spider:
    """A spider with its arguments."""
    check_arguments(kind, arguments)
    return kind(**arguments)


def check_arguments(kind: type[Spider], arguments: Mapping[str, str]) -> None:
    """InvalidInput for an argument that the spider does not take."""
    validation.arguments(arguments)
    for name in arguments:
        if callable(getattr(kind, name, None)):
            raise InvalidInput(f"Spider {kind.__name__} takes no argument {name!r}: this is one of its methods.")
    try:
        inspect.signature(kind).bind(**arguments)
    except TypeError as error:
        raise InvalidInput(f"Spider {kind.__name__} does not take these arguments: {error}.") from None


def unique(references: Iterable[tuple[str, Reference]]) -> dict[str, Reference]:
    """References by name; InvalidInput when two different spiders have the same name."""
    by_name: dict[str, Reference] = {}
    for name, reference in references:
        if by_name.setdefault(name, reference) != reference:
            raise InvalidInput(
                f"Two spiders are named {name}: {by_name[name]} and {reference}. Set `name` in one of them."
            )
    return by_name


def load(reference: str) -> type[Spider]:
    """The class of FILE.py:Class or package.module:Class. Loading runs the file, which is the user's own code."""
    where, _, name = reference.rpartition(":")
    if not where or not name.isidentifier():
        raise InvalidInput(f"Invalid spider {reference!r}: use FILE.py:Class or package.module:Class.")
    try:
        module = _module(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except InvalidInput:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"The spider {reference} cannot be loaded: {_where(error, where)}.") from error
    spider = getattr(module, name, None)
    if not (isinstance(spider, type) and issubclass(spider, Spider)):
        known = [value.__name__ for value in vars(module).values() if _is_spider(value, module.__name__)]
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise InvalidInput(f"No spider {name} in {where}; {has}. A spider is a subclass of shoal.Spider.")
    name_of(spider)
    return spider


def load_all(references: Mapping[str, str]) -> dict[str, type[Spider]]:
    """Load the spiders of a table of names and references."""
    return {validation.spider(name): load(reference) for name, reference in references.items()}


def installed() -> dict[str, str]:
    """Names and references of the spiders that installed packages declare as entry points."""
    # Imported here: it is slow to load, and workers get the references at start-up.
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}


def _module(path: Path) -> Any:
    path = path.resolve()
    if not path.is_file():
        raise InvalidInput(f"Spider file not found: {path}.")
    # As if the file were run: modules beside it can be imported.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    # Named by its path, so that a file called json.py does not replace the standard module.
    spec = importlib.util.spec_from_file_location(str(path), path)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[str(path)] = module
    spec.loader.exec_module(module)
    return module


def _is_spider(value: object, module: str) -> bool:
    return isinstance(value, type) and issubclass(value, Spider) and value.__module__ == module


def _where(error: BaseException, where: str) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.msg} in line {error.lineno} of {error.filename}"
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(where):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}" + (f", in line {line} of {where}" if line else "")
