"""Error responses that no callback receives, so that their requests have failed.

Asks Scrapy's HttpErrorMiddleware, which knows what the project allows (e.g. handle_httpstatus_list).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from scrapy import Spider
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError, HttpErrorMiddleware

from shoal.worker.outcome import Action, decide_status


class ErrorResponses:
    def __init__(self, engine: Any, spider: Spider) -> None:
        middlewares = engine.scraper.spidermw.middlewares
        self._checks: list[Callable[[Response], Any]] = [
            _with_spider(middleware.process_spider_input, spider)
            for middleware in middlewares
            if isinstance(middleware, HttpErrorMiddleware)
        ]

    def reason(self, response: Response) -> str:
        """Why the request has failed; '' for a page, for an error such as 404, and for what a callback receives."""
        if (
            response.status < 400
            or decide_status(response.status, conditional=False, location=False).action is not Action.RETRY
        ):
            return ""
        try:
            for check in self._checks:
                check(response)
        except HttpError:
            return f"status {response.status}"
        return ""


def _with_spider(check: Callable[..., Any], spider: Spider) -> Callable[[Response], Any]:
    """Scrapy 2.13 requires the argument `spider`; newer versions warn about it."""
    required = inspect.signature(check).parameters["spider"].default is inspect.Parameter.empty
    return partial(check, spider=spider) if required else check
