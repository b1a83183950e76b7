"""Spiders: what they see of a page, what they may yield, and how they are found."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal import Follow, Page, Spider
from shoal.errors import InvalidInput
from shoal.model.response import Response
from shoal.model.visit import Visit
from shoal.parse.html import Parsed, markup_of, parse, tree_of
from shoal.spider import load, name_of
from shoal.worker import outputs, spider_runner
from shoal.worker.crash_marker import CrashMarker, MarkedRun, read
from shoal.worker.outputs import Outputs
from shoal.worker.spider_runner import SpiderFailed, SpiderRunner, Yielded, first_visits

URL = "http://books.example/shelf/1?a=b"
HTML = b"""<html lang=en><title>Shelf</title><base href="/other/"><h3>One</h3><h3>Two</h3>
<a class=next href="2">next</a> <a class=next href="mailto:x@y">mail</a> <a class=next>none</a>
<a href="http://[">broken</a><img src="/cover.png"><a href="3#part">3</a></html>"""


def _page(body: bytes = HTML, content_type: str = "text/html", **more: Any) -> Page:
    response = Response(
        url=URL, status=200, headers=(("content-type", content_type), ("x", "1"), ("x", "2")), body=body
    )
    parsed = parse(body, url=URL, content_type=content_type) if "html" in content_type else Parsed()
    return Page(
        response, parsed=parsed, markup=lambda: markup_of(body, content_type), tree=tree_of, depth=2, priority=3,
        data={"from": "list"}, spider="Books", **more,
    )  # fmt: skip


def test_a_page_has_the_attributes_that_a_spider_needs() -> None:
    page = _page()
    assert (page.url, page.status, page.depth, page.data, page.body) == (URL, 200, 2, {"from": "list"}, HTML)
    assert (page.title, page.headers) == ("Shelf", {"content-type": "text/html", "x": "1"})
    assert page.text.startswith("One\nTwo\nnext")
    assert page.links == ["http://books.example/other/2", "http://books.example/other/3"]
    assert [node.text() for node in page.css("h3")] == ["One", "Two"]
    first = page.css_first("h3")
    assert first is not None
    assert first.text() == "One"
    assert page.css_first("h4") is None
    assert "<h3>One</h3>" in page.html
    assert page.selector.xpath("//h3[2]/text()").get() == "Two"


def test_reading_the_text_does_not_change_the_tree() -> None:
    page = _page(b"<title>T</title><script>var x</script>H<sub>2</sub>O")
    assert page.text == "H2O"
    assert page.css_first("script") is not None
    assert page.css_first("sub") is not None


def test_links_found_by_a_selector_are_resolved_against_the_base_url() -> None:
    followed = list(_page().follow("a, img", callback="book", data={"n": 1}, priority=7, spider="Reader"))
    options: dict[str, Any] = {"callback": "book", "data": {"n": 1}, "priority": 7, "spider": "Reader"}
    assert followed == [
        Follow(url="http://books.example/other/2", **options),
        Follow(url="mailto:x@y", **options),
        Follow(url="http://books.example/cover.png", **options),
        Follow(url="http://books.example/other/3#part", **options),
    ]
    assert _page().visit("?q=ä").url == "http://books.example/other/?q=%C3%A4"
    # Without a word on it, the priority of the page itself.
    assert _page().visit("/").priority == 3
    with pytest.raises(ValueError, match="is not a valid link"):
        _page().visit("http://[")


def test_the_base_url_is_searched_once_however_many_links_a_page_has(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    find = Page.css_first
    monkeypatch.setattr(Page, "css_first", lambda page, css: (looked.append(css), find(page, css))[1])  # type: ignore[func-returns-value]
    page = _page(b"".join(b'<a href="/%d">x</a>' % n for n in range(50)))
    assert len(list(page.follow("a"))) == 50
    assert looked == ["base[href]"]


def test_a_page_that_is_not_html_is_text_or_json() -> None:
    assert _page("Grüße".encode("latin-1"), "text/plain; charset=latin-1").text == "Grüße"
    assert _page(b'{"a": [1, 2]}', "application/json").json() == {"a": [1, 2]}
    for broken in (b"{", b"[" * 100_000):
        with pytest.raises(ValueError, match=r"books\.example/shelf/1\?a=b is not JSON"):
            _page(broken, "application/json").json()
    # JavaScript writes half a surrogate pair where it cut a text, and Python reads it.
    assert _page(b'{"a": "\\ud800z"}', "application/json").json() == {"a": "\ud800z"}


@dataclasses.dataclass
class Book:
    title: str
    when: datetime.date


class Model:
    """As those of other libraries are."""

    def model_dump(self) -> dict[str, Any]:
        return {"of": "a model"}


class Everything(Spider):
    """A method for each way to give something back."""

    def nothing(self, page: Page) -> None:
        return None

    def one(self, page: Page) -> Any:
        return {"one": 1}

    def some(self, page: Page) -> Any:
        return [{"one": 1}, None, page.visit("/2"), Book("T", datetime.date(2026, 1, 2))]

    def generator(self, page: Page) -> Iterator[Any]:
        yield {"one": 1}
        yield Model()

    async def later(self, page: Page) -> Any:
        await asyncio.sleep(0)
        return {"one": 1}

    async def stream(self, page: Page) -> AsyncIterator[Any]:
        for n in range(2):
            await asyncio.sleep(0)
            yield {"n": n}

    def text(self, page: Page) -> Any:
        yield {"one": 1}
        yield "text"

    def foreign(self, page: Page) -> Any:
        return {"it": object()}

    def broken(self, page: Page) -> Any:
        yield {"one": 1}
        raise KeyError("key")

    def half(self, page: Page) -> Any:
        yield {"half": "\ud800z", "\udfff": ["\ud83d\ude00"]}

    def no_from(self, page: Page) -> Any:
        yield page.follow("a")

    def endless(self, page: Page) -> Any:
        while True:
            yield {"text": "x" * 100_000}

    def _own(self, page: Page) -> Any:
        return {"secret": 1}

    def large(self, page: Page) -> Any:
        return page.visit("/2", data={"text": "x" * 50_000})

    def many(self, page: Page) -> Any:
        for n in range(1000):
            yield page.visit(f"/{n}", data={"text": "x" * 40_000})

    def no_data(self, page: Page) -> Any:
        return page.visit("/2", data={"it": object()})

    def cyclic(self, page: Page) -> Any:
        data: dict[str, Any] = {}
        data["it"] = data
        return page.visit("/2", data=data)

    def no_name(self, page: Page) -> Any:
        return Follow(url="http://a.example/", callback=lambda page: None)

    def no_priority(self, page: Page) -> Any:
        return page.visit("/2", priority=2**53)

    def no_spider(self, page: Page) -> Any:
        return page.visit("/2", spider="no such")

    def leaves(self, page: Page) -> Any:
        sys.exit(0)

    def interrupts(self, page: Page) -> Any:
        raise KeyboardInterrupt

    async def cancelled(self, page: Page) -> Any:
        task = asyncio.create_task(asyncio.sleep(100))
        task.cancel()
        await task

    def wordy(self, page: Page) -> Any:
        raise ValueError("x" * 1_000_000)

    def shared(self, page: Page) -> Any:
        data: dict[str, Any] = {"list": [1], "bytes": b"2"}
        for n in range(2):
            data["list"].append(n)
            yield Follow(url=URL, data=data)

    async def waits(self, page: Page) -> Any:
        await asyncio.Event().wait()

    number = 5


async def _plainly(work: Coroutine[Any, Any, Yielded]) -> Yielded:
    return await work


async def _call(callback: str) -> Yielded:
    response = Response(url=URL, status=200, headers=(("content-type", "text/html"),), body=HTML, started_at=5.0)
    visit = Visit(url=URL, meta={"callback": callback})
    return await SpiderRunner({"E": Everything}).read("E", "crawl", response, parse(HTML, url=URL), visit, _plainly)


@pytest.mark.parametrize(
    ("callback", "data"),
    [
        ("nothing", []), ("one", [{"one": 1}]), ("some", [{"one": 1}, {"title": "T", "when": "2026-01-02"}]),
        ("generator", [{"one": 1}, {"of": "a model"}]), ("later", [{"one": 1}]), ("stream", [{"n": 0}, {"n": 1}]),
        ("half", [{"half": "\ufffdz", "\ufffd": ["\U0001f600"]}]),
    ],
)  # fmt: skip
async def test_whatever_a_method_returns_becomes_items(callback: str, data: list[Any]) -> None:
    yielded = await _call(callback)
    assert [item.data for item in yielded.items] == data
    assert [item.number for item in yielded.items] == list(range(1, len(data) + 1))
    for item in yielded.items:
        assert item.key == ("crawl", f"{URL}#E/{item.number}")
    assert len(yielded.follows) == (callback == "some")


@pytest.mark.parametrize(
    ("callback", "reason", "sentence"),
    [
        ("text", "spider: InvalidInput", "A spider yielded str"),
        ("text", "spider: InvalidInput", "It came from Everything.text, line "),
        ("no_from", "spider: InvalidInput", "write `yield from`, e.g. `yield from page.follow(...)`."),
        ("foreign", "spider: InvalidInput", "object is not a plain value"),
        ("broken", "spider: KeyError", "KeyError: 'key'"),
        ("endless", "spider: yields too much", "the limit per page is 100,000 values and 16 MB."),
        ("absent", "spider: no method absent", ""),
        ("_own", "spider: no method _own", ""),
        ("number", "spider: no method number", ""),
        ("parse", "spider: NotImplementedError", "Everything has no method parse"),
        ("large", "spider: InvalidVisit", "the limit is about 48,000. It came from Everything.large."),
        ("many", "spider: yields too much", "Everything.many, line "),
        ("no_data", "spider: InvalidVisit", "object is not a plain value"),
        ("cyclic", "spider: InvalidVisit", "cannot be stored"),
        ("no_name", "spider: InvalidVisit", "callback of a follow-up is of type function: pass a method of the spider"),
        ("no_priority", "spider: InvalidLimit", "priority is 9007199254740992"),
        ("no_spider", "spider: InvalidLimit", "spider is 'no such'"),
        ("leaves", "spider: SystemExit", "sys.exit(0)"),
        ("interrupts", "spider: KeyboardInterrupt", "raise KeyboardInterrupt"),
        ("cancelled", "spider: CancelledError", "await task"),
    ],
)
async def test_an_error_in_a_spider_fails_its_page(
    callback: str, reason: str, sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SpiderFailed) as failed:
        await _call(callback)
    assert failed.value.reason == reason
    assert sentence in failed.value.trace
    # It is printed to the terminal, with the user's own lines only.
    shown = capfd.readouterr().err
    assert sentence in shown if sentence else not shown
    assert "worker/" not in failed.value.trace


async def test_a_traceback_is_shortened_to_a_readable_length() -> None:
    with pytest.raises(SpiderFailed) as failed:
        await _call("wordy")
    assert len(failed.value.trace) < 11_000
    assert 'raise ValueError("x" * 1_000_000)' in failed.value.trace


async def test_changes_to_data_after_it_was_yielded_are_not_sent() -> None:
    yielded = await _call("shared")
    sent = [follow.data for follow in yielded.follows]
    assert sent == [{"list": [1, 0], "bytes": b"2"}, {"list": [1, 0, 1], "bytes": b"2"}]
    assert yielded.size > 20


async def test_a_method_that_never_returns_fails_its_page_unless_it_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = asyncio.create_task(_call("waits"))
    await asyncio.sleep(0)
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    monkeypatch.setattr(spider_runner, "_MOST_SECONDS", 0.01)
    with pytest.raises(SpiderFailed, match="spider: TimeoutError"):
        await _call("waits")


async def test_the_spider_of_the_least_recently_used_crawl_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    class Counted(Spider):
        def __init__(self) -> None:
            made.append("one")

        def parse(self, page: Page) -> Any:
            return None

    monkeypatch.setattr(spider_runner, "_MOST_SPIDERS", 2)
    known = SpiderRunner({"E": Counted})
    response = Response(url=URL, status=200, body=HTML)
    for crawl in ("a", "b", "a", "c", "a", "b"):
        await known.read("E", crawl, response, Parsed(), Visit(url=URL), _plainly)
    # The one that is in use stays.
    assert len(made) == 4


@pytest.mark.parametrize("way", ["time.sleep(60)", "[0 for _ in iter(int, 1)]"])
def test_a_spider_that_blocks_forever_ends_its_process_and_leaves_a_crash_marker(way: str, tmp_path: Path) -> None:
    note = tmp_path / "note"
    program = (
        f"import asyncio, time\nfrom shoal.worker.crash_marker import CrashMarker, MarkedRun\nasync def work(): {way}\n"
    )
    program += (
        f"async def run(): await MarkedRun(work(), CrashMarker({str(note)!r}, 0.05), 'token', 7)\nasyncio.run(run())\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], timeout=30, check=False)
    assert ended.returncode == (-signal.SIGALRM if "sleep" in way else -signal.SIGPROF)
    assert read(note) == ("token", 7)


async def test_a_traceback_is_printed_once_per_location(capfd: pytest.CaptureFixture[str]) -> None:
    spider_runner = SpiderRunner({"E": Everything})
    response = Response(url=URL, status=200, body=HTML)
    for _ in range(3):
        with pytest.raises(SpiderFailed):
            await spider_runner.read(
                "E", "c", response, Parsed(), Visit(url=URL, meta={"callback": "broken"}), _plainly
            )
    assert capfd.readouterr().err.count("KeyError: 'key'") == 1


async def test_a_crash_is_attributed_to_a_page_only_while_its_spider_runs(tmp_path: Path) -> None:
    path = tmp_path / "note"
    marker = CrashMarker(str(path), 0.0)
    seen: list[tuple[str, int]] = []
    waiting, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        seen.append(read(path))
        waiting.set()
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            seen.append(read(path))
            raise
        seen.append(read(path))
        return "done"

    async def run() -> str:
        return await MarkedRun(work(), marker, "token", 7)

    task = asyncio.create_task(run())
    await waiting.wait()
    assert read(path) == ("", 0)
    go_on.set()
    assert await task == "done"
    waiting.clear()
    go_on.clear()
    task = asyncio.create_task(run())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == [("token", 7)] * 4
    assert read(path) == ("", 0)


class Starting(Spider):
    name = "starter"

    async def start(self) -> AsyncIterator[Any]:
        yield "http://a.example"
        yield Follow(url="http://b.example/x", callback="list", data={"page": 1}, priority=4)


async def test_a_spider_defines_its_start_urls() -> None:
    first, second = await first_visits(Starting)
    assert (first.url, first.found, first.meta) == ("http://a.example/", "seed", {})
    assert (second.url, second.priority, second.meta) == (
        "http://b.example/x",
        4,
        {"callback": "list", "data": {"page": 1}},
    )
    assert name_of(Starting) == "starter"
    assert name_of(Everything) == "Everything"


@pytest.mark.parametrize(
    ("urls", "sentence"),
    [
        ((), "has no start URL"), (("no url",), "is not a URL"), ((5,), "start of Bad yields int"),
        (5, "start of Bad failed: TypeError"),
        ((Follow(url="http://a.example/", spider="Other"),), "names a spider"),
        ((Follow(url="http://a.example/", data={"it": object()}),), "cannot be stored"),
    ],
)  # fmt: skip
async def test_an_invalid_start_url_is_refused_in_one_sentence(urls: Any, sentence: str) -> None:
    class Bad(Spider):
        def start(self) -> Any:
            return iter(urls)

    with pytest.raises(InvalidInput, match=sentence):
        await first_visits(Bad)


def test_a_spider_is_found_by_file_and_class(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'from beside'\n")
    (tmp_path / "json.py").write_text(
        "import dataclasses\nimport shoal\nfrom beside import NAME\n\n@dataclasses.dataclass\nclass It:\n    x: int\n\n"
        "class Books(shoal.Spider):\n    name = NAME.replace(' ', '-')\n"
    )
    spider = load(f"{tmp_path}/json.py:Books")
    assert name_of(spider) == "from-beside"
    import json

    assert json.loads("1") == 1


@pytest.mark.parametrize(
    ("source", "name", "sentence"),
    [
        (None, "Books", "Spider file not found"),
        ("x = 1", "Books", "it has none"),
        ("import shoal\nclass Other(shoal.Spider): pass", "Books", "it has Other"),
        ("class Books: pass", "Books", "A spider is a subclass"),
        ("def f(:\n  pass", "Books", "in line 1 of"),
        ("x = 1\nraise ValueError('no')", "Books", r"ValueError: no, in line 2 of .*spider\.py"),
        ("import sys\nsys.exit(1)", "Books", "SystemExit"),
        ("import shoal\nclass Books(shoal.Spider): name = 'a b'", "Books", "spider is 'a b'"),
        ("", "not a name", "use FILE.py:Class"),
    ],
)
def test_a_spider_that_cannot_be_loaded_is_reported_in_one_sentence(
    tmp_path: Path, source: str | None, name: str, sentence: str
) -> None:
    path = tmp_path / "spider.py"
    if source is not None:
        path.write_text(source)
    with pytest.raises(InvalidInput, match=sentence) as failed:
        load(f"{path}:{name}")
    assert "\n" not in str(failed.value)


async def test_idle_outputs_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Outputs("worker", lambda uri, local: lambda message: None, lambda message: None)
    first, second = ((f"jsonl:{tmp_path}/{name}.jsonl", True) for name in ("first", "second"))
    sink = await opened.sink(first)
    assert await opened.sink(first) is sink
    await opened.sink(second)
    assert await opened.sink(first) is sink
    monkeypatch.setattr(outputs, "_IDLE_SECONDS", 0.0)
    await opened.sink((f"jsonl:{tmp_path}/third.jsonl", True))
    assert await opened.sink(first) is not sink
    await opened.close()
