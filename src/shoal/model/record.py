"""Records: the values that go to a sink. The row of a page, an item that a spider yielded, or the response itself.

Each has a key that does not depend on the worker or on repetitions: sinks keep one record per key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from shoal.model.response import Response

# The crawl and the URL; of an item, the URL with the spider and the number.
RecordKey = tuple[str, str]


def record_url(url: str, method: str = "GET", body: bytes = b"") -> str:
    """The URL under which a request is recorded. Any request but a plain GET has a fragment: its method and body.

    No URL of a visit has a fragment. So requests that differ in method or body have different records.
    """
    if method == "GET" and not body:
        return url
    return f"{url}#{method}" + (f"-{hashlib.blake2s(body, digest_size=8).hexdigest()}" if body else "")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The row of one page, for each URL of a crawl that was stored or failed.

    `error` is '' for a page, otherwise the reason of its failure; `status` is 0 if there was no response.
    A record with status 304 confirms the row of its key: the row is still valid.
    `spider` is the spider that processed it, '' for Shoal itself; `file` is where the body is stored, '' if it is not.
    `redirects` is the chain that led here: each URL with the status of its redirect (0 for a "refresh").
    `text_hash` is the hash of title and text, or of the body if there is no text. A perpetual crawl also has when the
    page was first seen and last changed (ISO 8601, UTC), its visits, and how many of them found another text.
    A record is also a mapping from field names to values, so dict() and pandas accept it.
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
    spider: str = ""
    file: str = ""
    text_hash: str = ""
    first_seen: str = ""
    last_changed: str = ""
    visits: int = 0
    changes: int = 0

    @property
    def key(self) -> RecordKey:
        return (self.crawl, self.url)

    def to_dict(self) -> dict[str, Any]:
        """The fields by their names."""
        return msgspec.structs.asdict(self)

    def keys(self) -> tuple[str, ...]:
        """The names of the fields."""
        return self.__struct_fields__

    def __getitem__(self, name: str) -> Any:
        if name not in self.__struct_fields__:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__struct_fields__)

    def __len__(self) -> int:
        return len(self.__struct_fields__)


# Registered, because a struct cannot inherit from Mapping. pandas checks for it.
Mapping.register(Record)


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """The `number`th item that a spider yielded for the page `url`, counted from 1. `data` can be encoded as JSON.

    When a page is visited again, its items are replaced. Old items with higher numbers than the new ones are removed.
    """

    crawl: str
    url: str
    spider: str
    number: int
    fetched_at: float
    data: dict[str, Any]

    @property
    def key(self) -> RecordKey:
        # The fragment of a record's URL has no slash, so no other record has this key.
        return (self.crawl, f"{self.url}#{self.spider}/{self.number}")


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """One response as it was received, with any status, and its request: for outputs that archive."""

    crawl: str
    page: Response
    method: str = "GET"
    request_headers: tuple[tuple[str, str], ...] = ()
    request_body: bytes = b""

    @property
    def url(self) -> str:
        return self.page.url

    @property
    def key(self) -> RecordKey:
        return (self.crawl, record_url(self.page.url, self.method, self.request_body))
