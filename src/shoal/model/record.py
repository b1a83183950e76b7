"""A record: what goes to a sink, one for each URL of a crawl that was stored or failed."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The row of one page. Its key is the same whoever fetched the page and however often: sinks keep one of a key.

    `error` is '' for a page, else the reason of its failure; `status` is 0 when no answer came.
    A record with status 304 confirms the row of its key: what that row says of the page still holds.
    `redirects` is the chain that led here: each URL with the status that sent us on ("refresh" hops have status 0).
    """

    crawl: str
    url: str
    status: int = 0
    error: str = ""
    title: str = ""
    description: str = ""
    text: str = ""
    language: str = ""
    canonical: str = ""
    content_type: str = ""
    charset: str = ""
    bytes: int = 0
    depth: int = 0
    found: str = "link"
    links: int = 0
    robots: str = ""
    redirects: tuple[tuple[str, int], ...] = ()
    etag: str = ""
    last_modified: str = ""
    fetched_at: float = 0.0
    response_seconds: float = 0.0
    bytes_received: int = 0
    address: str = ""
    http_version: str = ""
    attempt: int = 1
    robots_ignored: bool = False
    worker: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return (self.crawl, self.url)
