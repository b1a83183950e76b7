"""Fetch pages for `shoal fetch` and `shoal shell`, with the flags of the command and without a store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from shoal.cli.options import request_settings, spec_fields

if TYPE_CHECKING:
    from shoal.operations.single_page import FetchedPage


class SingleFetch:
    """Fetches pages with the flags of one command, one page for each call of `fetch`. Use it in a `with` block."""

    def __init__(self, url: str, typed: dict[str, Any]) -> None:
        import msgspec

        from shoal.model.crawl_request import CrawlRequest
        from shoal.operations import seed_url
        from shoal.operations.seeds import without_logins
        from shoal.operations.submit import to_spec

        self._settings = request_settings(typed)
        # Credentials of the URL are sent as a header, and to its origin only.
        (self.url,), logins = without_logins([seed_url(url)])
        # Arguments are passed to the spider, which gets the page later.
        fields = {name: value for name, value in spec_fields("crawl", typed).items() if name != "arguments"}
        spec = to_spec(CrawlRequest(seeds=(), **fields), [self.url])
        self._spec = msgspec.structs.replace(spec, logins=logins)

    def __enter__(self) -> Self:
        from shoal.operations.single_page import PageFetcher

        self._runner = asyncio.Runner()
        self._fetcher = self._runner.run(self._open())
        self._pages = PageFetcher(self._fetcher, self._spec)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._runner.run(self._fetcher.close())
        finally:
            self._runner.close()

    def fetch(self, url: str = "") -> FetchedPage:
        from shoal.operations import seed_url

        return self._runner.run(self._pages.fetch(seed_url(url) if url else self.url))

    async def _open(self) -> Any:
        from shoal.fetch import Fetcher

        return Fetcher(self._settings.fetch)
