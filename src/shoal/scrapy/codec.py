"""A Scrapy request as bytes, and back: msgpack, never pickle. Owns what a request may carry and its stored form.

Callbacks are stored by their method name. Classes are looked up among the loaded ones: data from the store imports
nothing, and calls only the constructors of request and item classes and of scrapy-playwright's PageMethod.
"""

from __future__ import annotations

import datetime
import decimal
import importlib
import sys
import uuid
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any
from urllib.parse import urlsplit

import msgspec
from itemadapter import ItemAdapter
from scrapy import Request, Spider
from scrapy.http.request import NO_CALLBACK

from shoal.errors import InvalidVisit, StoreCorrupt
from shoal.scrapy.leased_slot import SLOT

_DOWNLOAD_KEYS = frozenset(("download_latency", "autothrottle_dont_adjust_delay"))
_PLAIN = (str, bytes, bool, float, type(None))
_NO_CALLBACK = "!none"
_FIELDS = "__dataclass_fields__"
_INT64 = 2**63
# Deeper nesting cannot be decoded everywhere, and a container that contains itself never ends.
_MAX_DEPTH = 100
_PAGE_METHOD = ("scrapy_playwright.page", "PageMethod")


class NotInThisProcess(StoreCorrupt):
    """A request needs a method or class that the spider of this process does not have. Another version may have it."""


class _Missing(ValueError):
    pass


class _Kind(IntEnum):
    """Extension types of msgpack, one per Python type that msgpack does not have."""

    TUPLE = 1
    SET = 2
    FROZENSET = 3
    PAIRS = 4
    BIG = 5
    DATETIME = 6
    DATE = 7
    TIME = 8
    TIMEDELTA = 9
    DECIMAL = 10
    UUID = 11
    ITEM = 12
    RANGE = 13
    NAMED_TUPLE = 14
    PAGE_METHOD = 15


class Packed(msgspec.Struct, array_like=True, omit_defaults=True):
    """The fields of a request beyond the URL, method and body of its visit. Their order is the stored form."""

    version: int = 1
    callback: str = ""
    errback: str = ""
    # A dict, or an extension if a key is not a string.
    meta: Any = {}
    headers: dict[bytes, list[bytes]] = {}
    cb_kwargs: Any = {}
    priority: int = 0
    dont_filter: bool = False
    # None where the value is the visit's.
    url: str | None = None
    method: str | None = None
    body: bytes | None = None
    cookies: Any = None
    encoding: str = "utf-8"
    flags: list[Any] = []
    kind: str = ""
    # Attributes of a subclass of Request, and the jar's cookies when the request was yielded.
    more: dict[str, Any] = {}
    jar: list[Any] = []


_REQUEST_ATTRIBUTES = frozenset(Request.attributes)


def pack(request: Request, spider: Spider, *, known: tuple[str, str, bytes], jar: list[Any]) -> bytes:
    """The bytes of a request. `known` are the URL, method and body of its visit, which are not stored again.

    InvalidVisit names the field that cannot be stored.
    """
    url, method, body = known
    meta = request.meta
    if "download_latency" in meta or meta.get("download_slot") == SLOT:
        # The meta was copied from a response and describes its download. So does a slot that Shoal or Scrapy has set;
        # any other slot was chosen by the project.
        slots = (SLOT, urlsplit(request.url).hostname)
        meta = {
            name: value for name, value in meta.items()
            if name not in _DOWNLOAD_KEYS and (name != "download_slot" or value not in slots)
        }  # fmt: skip
    try:
        return _encode(_packed(request, spider, meta, url, method, body, jar))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidVisit(f"{request} cannot be stored: {error}.") from None


def _packed(
    request: Request, spider: Spider, meta: dict[str, Any], url: str, method: str, body: bytes, jar: list[Any]
) -> Packed:
    kind = type(request)
    return Packed(
        callback=_name(request.callback, spider, "callback"),
        errback=_name(request.errback, spider, "errback"),
        meta=_portable(meta, "meta"),
        headers=dict(request.headers) if request.headers else {},
        cb_kwargs=_portable(request.cb_kwargs, "cb_kwargs"),
        priority=request.priority,
        dont_filter=bool(request.dont_filter),
        url=None if request.url == url else request.url,
        method=None if request.method == method else request.method,
        body=None if request.body == body else request.body,
        cookies=_portable(request.cookies or None, "cookies"),
        encoding=request.encoding,
        flags=_portable(list(request.flags), "flags"),
        kind="" if kind is Request else _path(kind),
        more={
            name: _portable(getattr(request, name), name) for name in kind.attributes if name not in _REQUEST_ATTRIBUTES
        },
        jar=jar,
    )  # fmt: skip


# What decoding foreign bytes, and Scrapy's own classes with foreign values, can raise.
_UNREADABLE = (
    msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip


def unpack(data: Any, *, known: tuple[str, str, bytes], spider: Spider) -> tuple[Request, list[Any]]:
    """The request, and cookies for its jar. StoreCorrupt for anything but a request of this spider."""
    url, method, body = known
    try:
        packed = _decode(data)
        kind = _request_class(packed.kind) if packed.kind else Request
        more = {name: value for name, value in packed.more.items() if name in kind.attributes}
        request = kind(
            url if packed.url is None else packed.url,
            method=method if packed.method is None else packed.method,
            body=body if packed.body is None else packed.body,
            callback=_method(packed.callback, spider), errback=_method(packed.errback, spider),
            headers=packed.headers, cookies=packed.cookies, meta=packed.meta, encoding=packed.encoding,
            priority=packed.priority, dont_filter=packed.dont_filter, flags=packed.flags,
            cb_kwargs=packed.cb_kwargs, **more,
        )  # fmt: skip
    except _UNREADABLE as error:
        missing = error if isinstance(error, _Missing) else error.__cause__
        if isinstance(missing, _Missing):
            raise NotInThisProcess(
                f"Spider {spider.name} of this process cannot make some requests: {missing}"
            ) from None
        raise StoreCorrupt(
            f"The stored request of {url[:80]!r} is not a request of spider {spider.name}: {error}"
        ) from None
    return request, packed.jar


def from_dict(fields: dict[str, Any], spider: Spider) -> Request:
    """The request of a dict of `Request.to_dict`. Classes and methods are looked up as in `unpack`."""
    kind: Any = _request_class(fields["_class"]) if "_class" in fields else Request
    arguments = {name: value for name, value in fields.items() if name in kind.attributes}
    for name in ("callback", "errback"):
        arguments[name] = _method(fields.get(name) or "", spider)
    request: Request = kind(**arguments)
    return request


def item_class(path: str) -> Any:
    """A loaded item class by its path; ValueError for anything else."""
    return _class(path, ItemAdapter.is_item_class)


def _name(function: Callable[..., Any] | None, spider: Spider, field: str) -> str:
    if function is None:
        return ""
    if function is NO_CALLBACK:
        return _NO_CALLBACK
    if getattr(function, "__self__", None) is spider:
        name: str = getattr(function, "__name__", "")
        if getattr(spider, name, None) == function:
            return name
        for kind in type(spider).__mro__:
            for name, value in vars(kind).items():
                if value is function.__func__:  # type: ignore[attr-defined]
                    return name
    raise InvalidVisit(
        f"{field} is {getattr(function, '__qualname__', function)!r}, which is not a method of spider {spider.name}. "
        "Another process can only find methods, by their name."
    )


def _method(name: str, spider: Spider) -> Any:
    if not name:
        return None
    if name == _NO_CALLBACK:
        return NO_CALLBACK
    # Does not evaluate properties.
    method = getattr(spider, name, None) if callable(getattr(type(spider), name, print)) else None
    if name.startswith("__") or getattr(method, "__self__", None) is not spider:
        raise _Missing(f"it has no method {name!r}.")
    return method


def _request_class(path: str) -> Any:
    """A loaded request class by its path. Nothing is imported."""
    pending = [Request]
    while pending:
        kind = pending.pop()
        if _path(kind) == path:
            return kind
        pending += kind.__subclasses__()
    raise _Missing(f"class {path!r} is not loaded.")


def _class(path: str, fits: Callable[[type], bool]) -> Any:
    """A loaded class by its path, of the kind that `fits` accepts."""
    kind = next((value for value in _loaded(path) if isinstance(value, type) and fits(value)), None)
    if kind is None:
        raise _Missing(f"class {path!r} is not loaded.")
    return kind


def _loaded(path: str) -> Iterator[Any]:
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        value: Any = sys.modules.get(".".join(parts[:cut]))
        for part in parts[cut:]:
            value = getattr(value, part, None)
        yield value


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _portable(value: Any, field: str, room: int = _MAX_DEPTH) -> Any:
    """The value with extensions for what msgpack lacks, so that decoding returns an equal value."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if -_INT64 <= value < 2 * _INT64 else _extension(_Kind.BIG, str(value))
    if not room:
        raise InvalidVisit(
            f"{field.partition('[')[0]} cannot be stored: it is nested more than {_MAX_DEPTH} deep or contains itself."
        )
    room -= 1
    if kind is dict:
        if all(type(name) is str for name in value):
            return {name: _portable(entry, f"{field}[{name!r}]", room) for name, entry in value.items()}
        pairs = [
            [_portable(name, field, room), _portable(entry, f"{field}[{name!r}]", room)]
            for name, entry in value.items()
        ]
        return _extension(_Kind.PAIRS, pairs)
    if kind is list:
        return _each(value, field, room)
    if kind in _SEQUENCES:
        return _extension(_SEQUENCES[kind], _each(value, field, room))
    if kind in _TEXTS:
        code, write = _TEXTS[kind]
        return _extension(code, write(value))
    if ItemAdapter.is_item(value):
        fields = {name: _portable(entry, f"{field}[{name!r}]", room) for name, entry in ItemAdapter(value).items()}
        return _extension(_Kind.ITEM, [_path(kind), fields])
    if _is_named_tuple(kind) and kind in _loaded(_path(kind)):
        return _extension(_Kind.NAMED_TUPLE, [_path(kind), _each(value, field, room)])
    if (kind.__module__, kind.__qualname__) == _PAGE_METHOD:
        call = (value.method, tuple(value.args), dict(value.kwargs))
        return _extension(_Kind.PAGE_METHOD, _each(call, field, room))
    for plain in _ROOTS:
        # A subclass, e.g. a str enum, is stored as its base, as in JSON.
        if isinstance(value, plain):
            return _portable(plain(value), field, room)
    raise InvalidVisit(
        f"{field} cannot be stored: it is a {_path(kind)}. Pass numbers, text, bytes, dates, lists, dicts or items, "
        "and create other objects in the callback."
    )


def _each(values: Any, field: str, room: int) -> list[Any]:
    return [_portable(value, f"{field}[{index}]", room) for index, value in enumerate(values)]


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple)


_ROOTS: tuple[Any, ...] = (str, bytes, int, float, list, dict, tuple, set, frozenset)
_SEQUENCES: dict[Any, _Kind] = {tuple: _Kind.TUPLE, set: _Kind.SET, frozenset: _Kind.FROZENSET}
_TEXTS: dict[type, tuple[_Kind, Callable[[Any], Any]]] = {
    datetime.datetime: (_Kind.DATETIME, lambda value: value.isoformat()),
    datetime.date: (_Kind.DATE, lambda value: value.isoformat()),
    datetime.time: (_Kind.TIME, lambda value: value.isoformat()),
    datetime.timedelta: (_Kind.TIMEDELTA, lambda value: [value.days, value.seconds, value.microseconds]),
    decimal.Decimal: (_Kind.DECIMAL, str),
    uuid.UUID: (_Kind.UUID, str),
    range: (_Kind.RANGE, lambda value: [value.start, value.stop, value.step]),
}


def _extension(code: _Kind, payload: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(int(code), _encode(payload))


def _item(path: str, fields: dict[str, Any]) -> Any:
    kind: Any = item_class(path)
    # Dataclass fields that are not arguments of the constructor are set afterwards.
    late = {field.name for field in getattr(kind, _FIELDS, {}).values() if not field.init}
    if late:
        item = kind(**{name: value for name, value in fields.items() if name not in late})
        for name in late & fields.keys():
            setattr(item, name, fields[name])
        return item
    return kind(**fields)


def _named_tuple(path: str, values: list[Any]) -> Any:
    kind: Any = _class(path, _is_named_tuple)
    if len(values) != len(kind._fields):
        raise ValueError(f"the fields of {path} differ from the stored ones.")
    # Without its constructor: no code of the class runs.
    return tuple.__new__(kind, values)


def _page_method(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    module, name = _PAGE_METHOD
    try:
        kind = getattr(importlib.import_module(module), name)
    except ImportError:
        raise ValueError("it needs scrapy-playwright, which is not installed.") from None
    return kind(method, *args, **kwargs)


_READ: dict[int, Callable[[Any], Any]] = {
    _Kind.TUPLE: tuple,
    _Kind.SET: set,
    _Kind.FROZENSET: frozenset,
    _Kind.PAIRS: dict,
    _Kind.BIG: int,
    _Kind.DATETIME: datetime.datetime.fromisoformat,
    _Kind.DATE: datetime.date.fromisoformat,
    _Kind.TIME: datetime.time.fromisoformat,
    _Kind.TIMEDELTA: lambda value: datetime.timedelta(*value),
    _Kind.DECIMAL: decimal.Decimal,
    _Kind.UUID: uuid.UUID,
    _Kind.ITEM: lambda value: _item(*value),
    _Kind.RANGE: lambda value: range(*value),
    _Kind.NAMED_TUPLE: lambda value: _named_tuple(*value),
    _Kind.PAGE_METHOD: lambda value: _page_method(*value),
}


def _read_extension(code: int, data: memoryview) -> Any:
    read = _READ.get(code)
    if read is None:
        raise ValueError(f"unknown extension {code}.")
    return read(_any(bytes(data)))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Packed, ext_hook=_read_extension).decode
_any = msgspec.msgpack.Decoder(ext_hook=_read_extension).decode
