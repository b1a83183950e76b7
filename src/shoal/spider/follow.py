"""A follow-up: a page that a spider wants to visit next, and the request that fetches it.

Owns how method, body, headers and cookies are written by the authors of spiders, and what of that a visit carries.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from shoal.errors import InvalidLimit, InvalidVisit
from shoal.model import validation

FORM_TYPE = "application/x-www-form-urlencoded"
_JSON_TYPE = "application/json"
_SHOWN = 80

# Names and values; a name may occur more than once.
Fields = Mapping[str, Any] | Iterable[tuple[str, Any]]


class Follow(msgspec.Struct, frozen=True, kw_only=True):
    """A page to visit next. Only `url` is required; without more, it is fetched by a plain GET."""

    # Absolute, or relative to the page's URL (its <base> is ignored). In `start` it must be absolute.
    url: str
    # The method that receives the page, or its name; '' means `parse`.
    callback: Any = ""
    # Passed to that method as `page.data`.
    data: Mapping[str, Any] = {}
    priority: int | None = None
    # Another spider that receives the page. Only workers with that spider visit it.
    spider: str = ""
    # '' means POST for a request with a body, form or JSON, and GET for any other.
    method: str = ""
    headers: Mapping[str, str] = {}
    # Put into the crawl's cookie jar for the host of the URL. Without a jar, they are sent with this request only.
    cookies: Mapping[str, str] = {}
    # At most one of the three is used: raw, as the fields of a form, or as JSON.
    body: bytes | str = b""
    form: Fields | None = None
    json: Any = None
    # Visit it even if the crawl has visited it before.
    dont_filter: bool = False

    def __iter__(self) -> Iterator[Follow]:
        """Itself: `yield` and `yield from` do the same with a single follow-up."""
        yield self


def ready(follow: Follow) -> Follow:
    """The follow-up as a visit carries it: names, bytes and dicts of text. InvalidVisit says what cannot be sent."""
    for name in ("url", "spider", "method"):
        if not isinstance(value := getattr(follow, name), str):
            raise InvalidVisit(f"{name} of a follow-up is of type {type(value).__name__}: it must be a str.")
    callback = callback_name(follow.callback)
    validation.spider(follow.spider)
    if follow.priority is not None:
        validation.whole("priority", follow.priority, 1 - validation.WIDEST, validation.WIDEST - 1)
    url, body, content_type = _content(follow)
    method = (follow.method or ("POST" if body or content_type else "GET")).upper()
    try:
        validation.method(method)
        headers = dict(validation.headers(_texts("headers", follow.headers)))
        cookies = _texts("cookies", follow.cookies)
        for name, value in cookies.items():
            validation.cookie(name, value)
    except InvalidLimit as error:
        raise InvalidVisit(f"A request of {follow.url[:_SHOWN]!r} cannot be made: {error}") from None
    if content_type and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = content_type
    return msgspec.structs.replace(
        follow, url=url, callback=callback, method=method, headers=headers, cookies=cookies, body=body, form=None,
        json=None, dont_filter=bool(follow.dont_filter),
    )  # fmt: skip


def callback_name(callback: Any) -> str:
    """The name by which workers look a method up: the store keeps no code."""
    if callback is None:
        return ""
    if isinstance(callback, str):
        return callback
    name = getattr(callback, "__name__", "")
    owner = getattr(callback, "__self__", None)
    if not inspect.ismethod(callback) or not name.isidentifier() or not hasattr(type(owner), name):
        raise InvalidVisit(
            f"callback of a follow-up is of type {type(callback).__name__}: pass a method of the spider, e.g. "
            "callback=self.parse_book, or its name."
        )
    if name.startswith("_"):
        raise InvalidVisit(f"callback {name} of a follow-up starts with _: only public methods receive pages.")
    return name


def encode_form(fields: Fields, charset: str = "utf-8") -> str:
    """The fields of a form as one text. A list is one field for each of its values, None is left out.

    Characters that the charset does not have are written as browsers do: as a number of HTML (&#8364;).
    """
    pairs = fields.items() if isinstance(fields, Mapping) else fields
    flat: list[tuple[str, str]] = []
    for name, value in pairs:
        values = value if isinstance(value, list | tuple) else (value,)
        flat += [(str(name), each if isinstance(each, str) else str(each)) for each in values if each is not None]
    return urlencode(flat, encoding=charset, errors="xmlcharrefreplace")


def with_query(url: str, query: str, *, replace: bool = False) -> str:
    """The URL with more parameters, or with these alone."""
    base, _, _ = url.partition("#")
    path, mark, old = base.partition("?")
    if replace or not old:
        return f"{path}?{query}" if query or mark else path
    return f"{path}?{old}&{query}" if query else base


def _content(follow: Follow) -> tuple[str, bytes, str]:
    """The URL, the body and the content type that the body implies."""
    given = [name for name in ("body", "form", "json") if getattr(follow, name) not in (None, b"", "")]
    if len(given) > 1:
        raise InvalidVisit(
            f"A request of {follow.url[:_SHOWN]!r} has both {given[0]} and {given[1]}: pass one of them."
        )
    if follow.form is not None:
        try:
            text = encode_form(follow.form)
        except (TypeError, ValueError) as error:
            raise InvalidVisit(f"form of a request of {follow.url[:_SHOWN]!r} cannot be sent: {error}.") from None
        if follow.method.upper() in ("GET", "HEAD"):
            return with_query(follow.url, text), b"", ""
        return follow.url, text.encode(), FORM_TYPE
    if follow.json is not None:
        try:
            return follow.url, msgspec.json.encode(follow.json), _JSON_TYPE
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidVisit(f"json of a request of {follow.url[:_SHOWN]!r} cannot be sent: {error}.") from None
    body = follow.body.encode() if isinstance(follow.body, str) else follow.body
    if not isinstance(body, bytes | bytearray | memoryview):
        raise InvalidVisit(f"body of a follow-up is of type {type(body).__name__}: it must be bytes or a str.")
    return follow.url, bytes(body), ""


def _texts(what: str, given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise InvalidVisit(f"{what} of a follow-up are of type {type(given).__name__}: use a dict.")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidVisit(f"{what} of a follow-up have {name!r:.80}: {value!r:.80}, but both must be str.")
    return dict(given)
