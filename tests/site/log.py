"""The site's own log: a line when a request arrives, and one when its response is sent.

Lines are appended whole and at once, so that everything in the log has happened, even if a process dies. The clock is
the machine's monotonic one, in microseconds: that of `time.monotonic()` in every process.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

NOTED = frozenset(("user-agent", "if-none-match", "if-modified-since", "cookie", "authorization", "referer"))


class Began(msgspec.Struct, frozen=True, tag="began", array_like=True):
    """`host` is what the client called it, `address` where it came in. `us` is the moment of its first byte."""

    number: int
    us: int
    host: str
    address: str
    method: str
    path: str
    headers: dict[str, str]


class Ended(msgspec.Struct, frozen=True, tag="ended", array_like=True):
    """`us` is the moment at which the last byte was handed to the kernel.

    `how`: done, gone (the client left), or the configured fault.
    """

    number: int
    us: int
    status: int
    bytes: int
    how: str


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the site saw it, in seconds. One that is still open has no `ended` yet: it is infinite."""

    host: str
    address: str
    method: str
    path: str
    headers: dict[str, str]
    began: float
    ended: float = float("inf")
    status: int = 0
    bytes: int = 0
    how: str = "open"

    @property
    def url(self) -> str:
        return f"http://{self.host}{self.path}"

    @property
    def is_robots(self) -> bool:
        return self.path == "/robots.txt"

    def __str__(self) -> str:
        return f"{self.method} {self.url} {self.began:.6f}-{self.ended:.6f} {self.status} {self.how}"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Began | Ended).decode


class Writer:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: Began | Ended) -> None:
        os.write(self._file, _encode(event) + b"\n")


def read(path: Path) -> list[Request]:
    """Every request, in the order in which they came."""
    requests: dict[int, Request] = {}
    for line in path.read_bytes().splitlines():
        event = _decode(line)
        if isinstance(event, Began):
            requests[event.number] = Request(
                host=event.host, address=event.address, method=event.method, path=event.path, headers=event.headers,
                began=event.us / 1e6,
            )  # fmt: skip
        else:
            requests[event.number] = msgspec.structs.replace(
                requests[event.number], ended=event.us / 1e6, status=event.status, bytes=event.bytes, how=event.how
            )
    return sorted(requests.values(), key=lambda request: request.began)
