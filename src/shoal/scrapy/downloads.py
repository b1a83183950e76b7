"""Downloads under a lease: no request is sent without one, and a download is aborted when its lease expires.

This stands between Scrapy's downloader and its download handlers. Scrapy has no call that aborts a download, but the
handlers close the connection when they are cancelled, which is how they implement their own timeouts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from weakref import WeakSet

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future

log = logging.getLogger("shoal.scrapy")


class DownloadAborted(IgnoreRequest):
    """The lease has expired, so another process makes this request."""


class Downloads:
    """`admit` waits until a request may be sent, and returns whether it is unscheduled; `give_up` ends its turn."""

    def __init__(
        self, downloader: Any, admit: Callable[[Request], Awaitable[bool]], give_up: Callable[[Request], None]
    ) -> None:
        self._admit = admit
        self._give_up = give_up
        self._downloads: dict[Request, asyncio.Future[Response]] = {}
        self._aborted: WeakSet[Request] = WeakSet()
        handlers: Any = getattr(downloader, "handlers", None)
        if hasattr(handlers, "download_request_async"):
            handlers.download_request_async = partial(self._download, handlers.download_request_async)
        elif handlers is not None:  # Scrapy 2.13
            send = handlers.download_request
            handlers.download_request = lambda request, spider: deferred_from_coro(
                self._download(lambda sent: maybe_deferred_to_future(send(sent, spider)), request)
            )

    def abort(self, request: Request) -> None:
        """Close the connection of a request, or never open one. Scrapy ignores the request, without an errback."""
        if request in self._aborted:
            return
        log.warning("The lease of %s has expired: the request is aborted and made again.", request)
        self._aborted.add(request)
        request.errback = None
        if (download := self._downloads.get(request)) is not None:
            download.cancel()

    def was_aborted(self, request: Request) -> bool:
        return request in self._aborted

    async def _download(self, send: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        while True:
            unscheduled = await self._admit(request)
            if request in self._aborted:
                raise DownloadAborted(f"The lease of {request} has expired.")
            download = self._downloads[request] = asyncio.ensure_future(send(request))
            try:
                return await download
            except BaseException:
                # Handlers raise different errors when they are cancelled.
                if request not in self._aborted:
                    raise
                if not unscheduled:
                    raise DownloadAborted(f"The lease of {request} has expired.") from None
                # No other process makes this request, so it waits for another turn.
                self._aborted.discard(request)
                self._give_up(request)
            finally:
                del self._downloads[request]
