"""Retries: repeat a call of the frontier until the store is ready for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shoal.errors import StoreError, StoreNotReady

# A call has already waited for `store.timeout_seconds` when it raises.
_PAUSE_SECONDS = 1.0

_T = TypeVar("_T")


async def until_ready(
    call: Callable[[], Awaitable[_T]],
    on_trouble: Callable[[str], None],
    *,
    errors: tuple[type[StoreError], ...] = (StoreNotReady,),
) -> _T:
    """Repeat the call while it raises one of the errors. Cancelling stops the retries."""
    while True:
        try:
            return await call()
        except errors as error:
            on_trouble(str(error))
            await asyncio.sleep(_PAUSE_SECONDS)
