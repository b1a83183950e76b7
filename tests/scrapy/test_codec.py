"""A request survives a round trip through the store, and nothing in the store can run code."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import sys
import uuid
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
import pytest
import scrapy
from hypothesis import given
from hypothesis import strategies as st
from scrapy.http import FormRequest, JsonRequest
from scrapy.http.request import NO_CALLBACK

from shoal.errors import InvalidVisit, StoreCorrupt
from shoal.scrapy import codec

_KNOWN = ("http://example.org/", "GET", b"")


class Field(scrapy.Item):
    name = scrapy.Field()


@dataclasses.dataclass
class Point:
    x: int
    y: int = 2
    total: int = dataclasses.field(init=False, default=0)


class Marked(scrapy.Request):
    attributes = (*scrapy.Request.attributes, "mark")

    def __init__(self, *args: Any, mark: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.mark = mark


class Spider(scrapy.Spider):
    name = "codec"

    def parse(self, response: Any) -> None: ...

    def other(self, response: Any) -> None: ...

    def __private(self, response: Any) -> None: ...

    def own(self) -> Any:
        return self.__private


SPIDER = Spider()


def again(request: scrapy.Request, known: tuple[str, str, bytes] = _KNOWN) -> scrapy.Request:
    return codec.unpack(codec.pack(request, SPIDER, known=known, jar=[]), known=known, spider=SPIDER)[0]


_scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.datetimes() | st.dates() | st.times() | st.timedeltas() | st.decimals(allow_nan=False) | st.uuids()
)  # fmt: skip
_keys = st.text() | st.integers() | st.binary()
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple)
    | st.dictionaries(_keys, inner, max_size=4) | st.sets(st.integers() | st.text(), max_size=4)
    | st.frozensets(st.integers(), max_size=4),
    max_leaves=12,
)  # fmt: skip


def _types(value: Any) -> Any:
    """1 and 1.0 and True are equal, and so are sets of both kinds: their types are compared besides."""
    if isinstance(value, dict):
        return [(type(name), type(entry), _types(entry)) for name, entry in value.items()]
    if isinstance(value, list | tuple):
        return [type(value), *(_types(entry) for entry in value)]
    return type(value)


@given(st.dictionaries(st.text(), _values, max_size=5), st.dictionaries(st.text(), _values, max_size=5))
def test_meta_and_cb_kwargs_keep_their_types(meta: dict[str, Any], cb_kwargs: dict[str, Any]) -> None:
    meta.pop("download_slot", None)
    back = again(scrapy.Request(_KNOWN[0], meta=meta, cb_kwargs=cb_kwargs))
    assert back.meta == meta
    assert back.cb_kwargs == cb_kwargs
    assert _types(back.meta) == _types(meta)


@pytest.mark.parametrize(
    "request_",
    [
        scrapy.Request("http://example.org/?b=1&a=2#part", callback=SPIDER.other, errback=SPIDER.parse, priority=-7),
        scrapy.Request("http://example.org/", headers={"X": ["a", "b"]}, cookies={"a": "b"}, dont_filter=True),
        scrapy.Request("http://example.org/", cookies=[{"name": "a", "value": "b", "domain": "example.org"}]),
        scrapy.Request("http://example.org/", method="PUT", body=b"\x00\xff", encoding="latin-1", flags=["f", "g"]),
        scrapy.Request("http://example.org/", callback=SPIDER.own()),
        FormRequest("http://example.org/", formdata={"a": "ä", "b": ["1", "2"]}),
        FormRequest("http://example.org/", formdata={"q": "x"}, method="GET"),
        JsonRequest("http://example.org/", data={"a": [1, None]}),
        Marked("http://example.org/", mark="m"),
        scrapy.Request("http://example.org/", meta={"playwright": True, "playwright_page_goto_kwargs": {"timeout": 5}}),
    ],
    ids=str,
)
def test_every_field_of_a_request_survives_a_round_trip(request_: scrapy.Request) -> None:
    back = again(request_)
    assert type(back) is type(request_)
    assert back.to_dict(spider=SPIDER) == request_.to_dict(spider=SPIDER)


def test_fields_of_the_visit_are_not_stored_twice_and_an_empty_body_stays_empty() -> None:
    request = scrapy.Request("http://example.org/b", body=b"")
    assert again(request, ("http://example.org/b", "GET", b"start 0")).body == b""
    plain = codec.pack(scrapy.Request(_KNOWN[0]), SPIDER, known=_KNOWN, jar=[])
    assert b"example" not in plain


def test_a_request_without_a_callback_survives_a_round_trip() -> None:
    assert again(scrapy.Request(_KNOWN[0], callback=NO_CALLBACK)).callback is NO_CALLBACK
    assert again(scrapy.Request(_KNOWN[0])).callback is None


def test_items_keep_their_class() -> None:
    point = Point(1)
    point.total = 9
    item = Field(name=[point])
    back = again(scrapy.Request(_KNOWN[0], cb_kwargs={"item": item})).cb_kwargs["item"]
    assert back == item
    assert type(back["name"][0]) is Point


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (scrapy.Request(_KNOWN[0], callback=print), "callback"),
        (scrapy.Request(_KNOWN[0], errback=lambda failure: None), "errback"),
        (scrapy.Request(_KNOWN[0], callback=Spider().parse), "callback"),
        (scrapy.Request(_KNOWN[0], meta={"a": {"b": [0, object()]}}), r"meta\['a'\]\['b'\]\[1\]"),
        (scrapy.Request(_KNOWN[0], cb_kwargs={"f": open}), r"cb_kwargs\['f'\]"),
    ],
)
def test_a_value_that_cannot_be_stored_is_named_by_its_field(request_: scrapy.Request, field: str) -> None:
    with pytest.raises(InvalidVisit, match=f"^{field} (is |cannot be stored: )"):
        codec.pack(request_, SPIDER, known=_KNOWN, jar=[])


def _packed(**fields: Any) -> bytes:
    return msgspec.msgpack.encode(codec.Packed(**fields))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x80", b"\xff" * 20, _packed(callback="__init__"), _packed(callback="name"), _packed(callback="gone"),
        _packed(kind="os.system"), _packed(kind="subprocess.Popen"), _packed(kind="shutil.rmtree"),
        _packed(meta={"a": msgspec.msgpack.Ext(12, msgspec.msgpack.encode(["os.system", {"command": "true"}]))}),
        _packed(meta={"a": msgspec.msgpack.Ext(12, msgspec.msgpack.encode(["subprocess.Popen", {"args": "true"}]))}),
        _packed(meta={"a": msgspec.msgpack.Ext(99, b"")}), _packed(meta={"a": msgspec.msgpack.Ext(6, b"\xa1x")}),
        _packed(url="no url"), _packed(priority=1) + b"x",
    ],
    ids=lambda data: repr(data[-30:]),
)  # fmt: skip
def test_data_that_is_not_a_request_of_the_spider_has_no_effect(data: bytes) -> None:
    with pytest.raises(StoreCorrupt):
        codec.unpack(data, known=_KNOWN, spider=SPIDER)


class Asked(Spider):
    @property
    def server(self) -> Any:
        raise AssertionError("the store has made something happen")


def test_a_stored_name_of_a_property_is_not_evaluated() -> None:
    with pytest.raises(StoreCorrupt, match="it has no method 'server'"):
        codec.unpack(_packed(callback="server"), known=_KNOWN, spider=Asked())


@given(st.binary(max_size=200))
def test_any_bytes_give_a_request_or_store_corrupt(data: bytes) -> None:
    try:
        request, _ = codec.unpack(data, known=_KNOWN, spider=SPIDER)
    except StoreCorrupt:
        return
    assert isinstance(request, scrapy.Request)


def test_the_table_has_the_types_that_pickle_projects_use() -> None:
    meta = {"d": decimal.Decimal("1.10"), "u": uuid.UUID(int=5), "t": datetime.timedelta(1, 2, 3)}
    assert again(scrapy.Request(_KNOWN[0], meta=meta)).meta == meta


def test_keys_that_are_not_text_survive_a_round_trip() -> None:
    meta: dict[Any, Any] = {1: "a", "b": 2}
    cb_kwargs: dict[Any, Any] = {(1, 2): 3}
    back = again(scrapy.Request(_KNOWN[0], meta=meta, cb_kwargs=cb_kwargs))
    assert (back.meta, back.cb_kwargs) == (meta, cb_kwargs)


class Place(NamedTuple):
    street: str
    number: int


def test_ranges_and_named_tuples_keep_their_types() -> None:
    unknown = collections.namedtuple("unknown", "a b")
    meta = {"handle_httpstatus_list": range(400, 600, 2), "at": Place("High", 3), "of": unknown(1, [2])}
    back = again(scrapy.Request(_KNOWN[0], meta=meta)).meta
    assert back == meta
    assert (type(back["at"]), back["at"].street) == (Place, "High")
    # Nobody could find a class that only a function knows.
    assert type(back["of"]) is tuple


def _nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    made: Any = 1
    for _ in range(depth):
        made = wrap(made)
    return made


@pytest.mark.parametrize(
    "wrap", [lambda inner: [inner], lambda inner: (inner,), lambda inner: {1: inner}, lambda inner: {"a": inner}]
)
def test_a_value_nested_too_deep_is_refused_when_yielded_and_not_when_read(wrap: Callable[[Any], Any]) -> None:
    assert again(scrapy.Request(_KNOWN[0], meta={"it": _nested(99, wrap)})).meta == {"it": _nested(99, wrap)}
    for depth in (100, 5000):
        with pytest.raises(
            InvalidVisit, match=r"^meta cannot be stored: it is nested more than 100 deep or contains itself"
        ):
            codec.pack(scrapy.Request(_KNOWN[0], meta={"it": _nested(depth, wrap)}), SPIDER, known=_KNOWN, jar=[])


def test_a_value_that_contains_itself_is_refused() -> None:
    meta: dict[str, Any] = {}
    meta["again"] = [meta]
    with pytest.raises(
        InvalidVisit, match=r"^meta cannot be stored: it is nested more than 100 deep or contains itself"
    ):
        codec.pack(scrapy.Request(_KNOWN[0], meta=meta), SPIDER, known=_KNOWN, jar=[])


@pytest.mark.parametrize("text", ["\ud800", ("\ud800",)])
def test_text_that_cannot_be_encoded_is_refused(text: Any) -> None:
    with pytest.raises(InvalidVisit, match="cannot be stored"):
        codec.pack(scrapy.Request(_KNOWN[0], meta={"it": text}), SPIDER, known=_KNOWN, jar=[])


class PageMethod:
    """As scrapy-playwright has it."""

    def __init__(self, method: Any, *args: Any, **kwargs: Any) -> None:
        self.method, self.args, self.kwargs = method, args, kwargs
        self.result: Any = None


PageMethod.__module__ = "scrapy_playwright.page"


def test_page_methods_of_scrapy_playwright_survive_a_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("scrapy_playwright", "scrapy_playwright.page"):
        module = ModuleType(name)
        vars(module)["PageMethod"] = PageMethod
        monkeypatch.setitem(sys.modules, name, module)
    step = PageMethod("click", "a", {"b": (1,)}, timeout=5)
    step.result = object()
    back = again(scrapy.Request(_KNOWN[0], meta={"playwright_page_methods": [step]})).meta["playwright_page_methods"]
    assert [type(method) for method in back] == [PageMethod]
    assert vars(back[0]) == {"method": "click", "args": ("a", {"b": (1,)}), "kwargs": {"timeout": 5}, "result": None}
    with pytest.raises(InvalidVisit, match=r"methods'\]\[0\]\[0\] cannot be stored: it is a builtins.function"):
        codec.pack(
            scrapy.Request(_KNOWN[0], meta={"playwright_page_methods": [PageMethod(lambda page: None)]}),
            SPIDER, known=_KNOWN, jar=[],
        )  # fmt: skip


def test_page_methods_of_scrapy_playwright_are_corrupt_if_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed = codec.pack(scrapy.Request(_KNOWN[0], meta={"steps": [PageMethod("click")]}), SPIDER, known=_KNOWN, jar=[])
    monkeypatch.setitem(sys.modules, "scrapy_playwright.page", None)
    with pytest.raises(StoreCorrupt, match="scrapy-playwright, which is not installed"):
        codec.unpack(packed, known=_KNOWN, spider=SPIDER)


@pytest.mark.parametrize("path", ["os.system", "subprocess.Popen", "builtins.tuple", "tests.scrapy.test_codec.Point"])
def test_a_stored_named_tuple_cannot_create_another_type(path: str) -> None:
    ext = msgspec.msgpack.Ext(14, msgspec.msgpack.encode([path, ["true", 1]]))
    with pytest.raises(StoreCorrupt, match="is not loaded"):
        codec.unpack(_packed(meta={"a": ext}), known=_KNOWN, spider=SPIDER)


@pytest.mark.parametrize(
    ("slot", "kept"), [("mine", "mine"), ("shoal", None), ("example.org", None), ("other.org", "other.org")]
)
def test_a_slot_that_the_project_chose_is_kept_on_a_copy(slot: str, kept: str | None) -> None:
    copy = scrapy.Request(_KNOWN[0], meta={"download_slot": slot, "download_latency": 0.5, "tag": 1})
    assert again(copy).meta == {"tag": 1, **({"download_slot": kept} if kept else {})}
