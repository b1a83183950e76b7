"""`shoal.testing`: a spider on a saved page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.errors import InvalidInput
from shoal.testing import run_spider

HTML = b"<title>Books</title><a class=next href=2.html>next</a><h3>One</h3><h3>Two</h3>"


class Books(shoal.Spider):
    selector = "h3"

    def parse(self, page: shoal.Page) -> Iterator[Any]:
        for node in page.css(self.selector):
            yield {"name": node.text(), "url": page.url}
        yield from page.follow("a.next", data={"number": 2})

    async def detail(self, page: shoal.Page) -> dict[str, Any]:
        return {"number": page.data["number"], "price": page.json()["price"], "status": page.status}

    def broken(self, page: shoal.Page) -> None:
        raise KeyError(page.title)


def test_items_and_follows_of_a_saved_page_are_returned(tmp_path: Path) -> None:
    (tmp_path / "books.html").write_bytes(HTML)
    result = run_spider(Books, tmp_path / "books.html", url="https://books.example/list/")
    assert [item["name"] for item in result.items] == ["One", "Two"]
    assert result.items[0]["url"] == "https://books.example/list/"
    assert [(follow.url, follow.data) for follow in result.follows] == [
        ("https://books.example/list/2.html", {"number": 2})
    ]


def test_another_method_gets_its_data_and_a_file_gets_its_type(tmp_path: Path) -> None:
    (tmp_path / "book.json").write_text('{"price": 7}')
    result = run_spider(Books, str(tmp_path / "book.json"), callback="detail", data={"number": 3}, status=203)
    assert result.items == ({"number": 3, "price": 7, "status": 203},)


def test_a_spider_object_can_be_tested_instead_of_its_class() -> None:
    books = Books()
    books.selector = "title"
    assert [item["name"] for item in run_spider(books, HTML).items] == ["Books"]
    assert [item["name"] for item in run_spider(Books, HTML, arguments={"selector": "title"}).items] == ["Books"]


def test_the_charset_of_a_header_counts() -> None:
    page = "<h3>caf\xe9</h3>".encode("latin-1")
    result = run_spider(Books, page, headers={"Content-Type": "text/html; charset=iso-8859-1"})
    assert result.items[0]["name"] == "caf\xe9"


def test_an_exception_of_the_spider_is_raised_unchanged() -> None:
    with pytest.raises(KeyError, match="Books"):
        run_spider(Books, HTML, callback="broken")


def test_a_missing_method_or_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no method nothing"):
        run_spider(Books, HTML, callback="nothing")
    with pytest.raises(InvalidInput, match="cannot be read"):
        run_spider(Books, tmp_path / "none.html")
