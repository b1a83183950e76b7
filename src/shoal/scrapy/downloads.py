"""What Scrapy's download handlers have under way: nothing is sent without a place, nor goes on when its lease is over.

This stands between the downloader and the handlers. Scrapy has no call that ends a transfer, but its handlers close
the connection when they are cancelled, which is how they keep their own time-outs.
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


class BrokenOff(IgnoreRequest):
    """The lease is over: somebody else makes this request."""


class Transfers:
    """`admit` waits until a request may be sent, and says whether it has waited as a guest; `give_up` ends that."""

    def __init__(
        self, downloader: Any, admit: Callable[[Request], Awaitable[bool]], give_up: Callable[[Request], None]
    ) -> None:
        self._admit = admit
        self._give_up = give_up
        self._open: dict[Request, asyncio.Future[Response]] = {}
        self._broken: WeakSet[Request] = WeakSet()
        handlers: Any = getattr(downloader, "handlers", None)
        if hasattr(handlers, "download_request_async"):
            handlers.download_request_async = partial(self._transfer, handlers.download_request_async)
        elif handlers is not None:  # Scrapy 2.13
            send = handlers.download_request
            handlers.download_request = lambda request, spider: deferred_from_coro(
                self._transfer(lambda one: maybe_deferred_to_future(send(one, spider)), request)
            )

    def break_off(self, request: Request) -> None:
        """Close its connection, or never open one. To Scrapy it is a request that is ignored, without an errback."""
        if request in self._broken:
            return
        log.warning("The lease of %s is over: the request is broken off and made again.", request)
        self._broken.add(request)
        request.errback = None
        if (transfer := self._open.get(request)) is not None:
            transfer.cancel()

    def broke_off(self, request: Request) -> bool:
        return request in self._broken

    async def _transfer(self, send: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        while True:
            guest = await self._admit(request)
            if request in self._broken:
                raise BrokenOff(f"The lease of {request} is over.")
            transfer = self._open[request] = asyncio.ensure_future(send(request))
            try:
                return await transfer
            except BaseException:
                # Handlers tell in ways of their own that they were cancelled.
                if request not in self._broken:
                    raise
                if not guest:
                    raise BrokenOff(f"The lease of {request} is over.") from None
                # Nobody else makes it: it waits for another turn.
                self._broken.discard(request)
                self._give_up(request)
            finally:
                del self._open[request]
