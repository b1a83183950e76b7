"""Assertions about a fetch that must fail."""

from __future__ import annotations

import pytest

from shoal.errors import FetchError
from shoal.fetch import Fetcher, Request


async def failure(fetcher: Fetcher, url: str, **options: object) -> FetchError:
    """The error that fetching this raises."""
    with pytest.raises(FetchError) as caught:
        await fetcher.fetch(Request(url=url, **options))  # type: ignore[arg-type]
    return caught.value
