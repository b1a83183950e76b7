"""Answers that are errors of the server and that no callback gets: Scrapy has given up on their requests.

Asks Scrapy's own middleware, which knows what the project allows (handle_httpstatus_list and such).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from scrapy import Spider
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError, HttpErrorMiddleware

from shoal.worker.outcome import Do, of_status


class ErrorResponses:
    def __init__(self, engine: Any, spider: Spider) -> None:
        middlewares = engine.scraper.spidermw.middlewares
        self._asked: list[Callable[[Response], Any]] = [
            _with_spider(one.process_spider_input, spider)
            for one in middlewares
            if isinstance(one, HttpErrorMiddleware)
        ]

    def reason(self, response: Response) -> str:
        """Why its request has failed; empty for a page, a 404 and such, and for what the callback is given."""
        if response.status < 400 or of_status(response.status, conditional=False, location=False).do is not Do.RETRY:
            return ""
        try:
            for ask in self._asked:
                ask(response)
        except HttpError:
            return f"status {response.status}"
        return ""


def _with_spider(ask: Callable[..., Any], spider: Spider) -> Callable[[Response], Any]:
    """Scrapy 2.13 wants the spider along; newer ones warn about it."""
    wanted = inspect.signature(ask).parameters["spider"].default is inspect.Parameter.empty
    return partial(ask, spider=spider) if wanted else ask
