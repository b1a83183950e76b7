"""A worker's report: counts since it started, as one line of JSON at intervals."""

from __future__ import annotations

import builtins

import msgspec


class RequestLine(msgspec.Struct, frozen=True, kw_only=True, tag="request"):
    """One request of a worker, for `shoal crawl -v`: status 0 and `error` if there was no response.

    `cached`: the response came from the cache of `--cache`, and nothing was requested.
    """

    url: str
    status: int = 0
    error: str = ""
    bytes: int = 0
    seconds: float = 0.0
    at: float = 0.0
    cached: bool = False

    def line(self) -> builtins.bytes:
        return msgspec.json.encode(self) + b"\n"

    @classmethod
    def of(cls, line: builtins.bytes) -> RequestLine | None:
        """Return None for any other line."""
        if not line.startswith(b'{"type":"request"'):
            return None
        return msgspec.json.decode(line, type=cls)


class LatestPage(msgspec.Struct, frozen=True):
    """A page that a worker stored recently, for people who watch a crawl.

    title       title of the page, truncated
    fetched_at  time of the request, in seconds since 1970
    """

    crawl: str
    url: str
    status: int
    title: str
    fetched_at: float


class WorkerReport(msgspec.Struct, kw_only=True):
    """Counts, which only grow, and how the worker spent its time, to find the bottleneck.

    trapped             links that were not followed, by the kind of trap
    revisited           pages of a pass, by `unchanged`, `changed` and `gone`
    backing_off         hosts that are paused after errors
    ahead               by crawl, the time that the slowest host needs for its waiting visits
    cpu_seconds         CPU time of the process
    politeness_seconds  every host was cooling down or backing off, or no URL was waiting
    network_seconds     all leased hosts were waiting for servers
    sink_seconds        nothing could be fetched, because an output had not accepted earlier records
    store_seconds       calls to the store that took longer than a second
    trouble             what the worker waits for now
    warning             the last message that the user should see once
    """

    worker: str = ""
    pid: int = 0
    pages: int = 0
    requests: int = 0
    bytes: int = 0
    failed: dict[str, int] = {}
    excluded: dict[str, int] = {}
    trapped: dict[str, int] = {}
    retries: int = 0
    revisited: dict[str, int] = {}
    items: int = 0
    leases: int = 0
    leases_lost: int = 0
    open_hosts: int = 0
    backing_off: int = 0
    ahead: dict[str, float] = {}
    alive_seconds: float = 0.0
    cpu_seconds: float = 0.0
    politeness_seconds: float = 0.0
    network_seconds: float = 0.0
    sink_seconds: float = 0.0
    store_seconds: float = 0.0
    trouble: str = ""
    warning: str = ""
    idle: bool = False

    def line(self) -> builtins.bytes:
        return msgspec.json.encode(self) + b"\n"

    @classmethod
    def of(cls, line: builtins.bytes) -> WorkerReport:
        return msgspec.json.decode(line, type=cls)
