"""Test a spider without a network: run one of its methods on a saved page.

    from shoal.testing import run_spider

    def test_the_list_page_has_twenty_books():
        result = run_spider(Books, "books.html", url="https://books.example/")
        assert len(result.items) == 20
        assert result.follows[0].url == "https://books.example/page-2.html"

Save a page with `shoal fetch URL --body > books.html`. The spider is called as a worker calls it: items are checked and
become dicts, and an exception of the spider is raised unchanged.
"""

from __future__ import annotations

import asyncio
import inspect
import mimetypes
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from shoal.errors import InvalidInput
from shoal.model.response import Response
from shoal.operations import single_page
from shoal.operations.single_page import SpiderResult
from shoal.spider import Spider
from shoal.urls.canonical import canonical
from shoal.worker.spider_runner import SpiderFailed

__all__ = ["SpiderResult", "run_spider"]


def run_spider(
    spider: type[Spider] | Spider, page: str | PathLike[str] | bytes, *, url: str = "https://example.org/",
    callback: str = "parse", data: Mapping[str, Any] | None = None, status: int = 200,
    headers: Mapping[str, str] | None = None, depth: int = 0, arguments: Mapping[str, str] | None = None,
) -> SpiderResult:  # fmt: skip
    """Call a method of a spider with a page, and return its items and follows.

    spider    the class, or an object of it
    page      a file, or the body itself as bytes
    url       the page's URL, to which links are relative
    callback  the method, by its name
    data      the data of the `Follow` that led to this page, as `page.data`
    arguments the arguments that `-a` passes to a crawl with this spider
    headers   headers of the response. Without a Content-Type, the file's extension decides; bytes are HTML
    """
    if isinstance(page, bytes):
        body, guessed = page, "text/html"
    else:
        path = Path(page)
        try:
            body = path.read_bytes()
        except OSError as error:
            raise InvalidInput(f"The saved page {path} cannot be read: {error.strerror}.") from None
        guessed = mimetypes.guess_type(path.name)[0] or "text/html"
    by_name = {name.lower(): value for name, value in (headers or {}).items()}
    response = Response(
        url=canonical(url).url, status=status, headers=tuple({"content-type": guessed, **by_name}.items()), body=body
    )
    if not hasattr(spider, callback) or not inspect.isroutine(getattr(spider, callback)):
        name = spider.__name__ if isinstance(spider, type) else type(spider).__name__
        raise InvalidInput(f"Spider {name} has no method {callback}.")
    call = single_page.run_spider(
        spider, response, callback=callback, data=dict(data or {}), depth=depth, arguments=arguments
    )
    try:
        return asyncio.run(call)
    except SpiderFailed as error:
        raise error.__cause__ or InvalidInput(f"{error.reason}. {error.trace}") from None
