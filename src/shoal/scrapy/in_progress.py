"""The engine's set of requests in progress, replaced so that Shoal learns when a request is finished."""

from __future__ import annotations

from collections.abc import Callable

from scrapy import Request


class InProgress(set[Request]):
    """The engine's requests in progress. The engine has no signal for a finished request, but removes it here."""

    def __init__(self, on_removed: Callable[[Request], None]) -> None:
        super().__init__()
        self._on_removed = on_removed

    def remove(self, request: Request) -> None:
        super().remove(request)
        self._on_removed(request)
