"""A response: the data that a server returned for one request."""

from __future__ import annotations

import msgspec


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from the start of a request to each of its steps; 0 where a step did not happen."""

    name_lookup: float = 0.0
    connect: float = 0.0
    tls: float = 0.0
    first_byte: float = 0.0
    total: float = 0.0


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A complete response, with any status. `body` is decoded, `bytes_received` counts the bytes on the wire.

    Names of headers are in lower case, in the order in which they came; values are Latin-1 text.
    """

    url: str
    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    address: str = ""
    http_version: str = ""
    bytes_received: int = 0
    started_at: float = 0.0
    timings: Timings = Timings()

    def header(self, name: str) -> str:
        """The first header of this name (in lower case), '' when there is none."""
        for key, value in self.headers:
            if key == name:
                return value
        return ""

    def all_headers(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]
