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
        """None for a line that is something else."""
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
    """Counts only grow. Seconds say where the time of this worker went, for "what limited the speed".

    `politeness_seconds`: nothing to fetch because every host was cooling down or backing off, or nothing waited.
    `sink_seconds`: nothing could be fetched since the output had not taken what was; `store_seconds`: calls to the
    store that took longer than a second.
    `network_seconds`: hosts were leased and all of them were waiting for servers. `cpu_seconds`: the process's own.
    `ahead`: by crawl, how long what waits for one host takes, of the host that takes longest. `backing_off`: hosts that
    are paused after errors. `revisited`: pages of a pass, by `unchanged`, `changed` and `gone`. `trapped`: links
    that were not followed, by the kind of trap. `trouble`: what the worker waits for now. `warning`: the last sentence
    that the user should read once.
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
