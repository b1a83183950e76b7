"""A heartbeat: what a worker or Scrapy process publishes about itself every few seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from shoal.model.worker_report import LatestPage

# Excludes infinity and NaN, which JSON cannot express.
Integer = Annotated[int, Meta(gt=-(10**15), lt=10**15)]
Number = Annotated[float, Meta(gt=-1e15, lt=1e15)]


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A field that the worker did not send, or that is invalid, has its default.

    kind                '' a worker, 'scrapy' a Scrapy process with a crawl, 'scrapy standby' one that waits for a crawl
    machine             name of the machine
    owns                whether the process takes part in sharing the shards
    spiders             names of the spiders that the process has; '' is none
    hosts               how many hosts the worker leases at most
    paused              crawls that wait for an output of this worker
    latest              the last pages that the worker stored
    name, spider        crawl and spider of a Scrapy process
    since               when a Scrapy process joined its crawl
    boot, started       boot and start time of a Scrapy process, with which its peers on the machine detect its death
    *_seconds, *_bytes  as in WorkerReport; `memory_bytes` is the largest memory so far
    """

    kind: str = ""
    machine: str = ""
    pid: Integer = 0
    version: str = ""
    owns: bool = True
    spiders: list[str] = []
    hosts: Integer = 0
    pages: Integer = 0
    pages_per_second: Number = 0.0
    bytes_per_second: Number = 0.0
    alive_seconds: Number = 0.0
    cpu_seconds: Number = 0.0
    politeness_seconds: Number = 0.0
    network_seconds: Number = 0.0
    sink_seconds: Number = 0.0
    store_seconds: Number = 0.0
    memory_bytes: Integer = 0
    open_hosts: Integer = 0
    leases_lost: Integer = 0
    paused: list[str] = []
    latest: list[LatestPage] = []
    name: str = ""
    spider: str = ""
    since: Number = 0.0
    boot: str = ""
    started: Integer = 0

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Heartbeat:
        fields = {}
        for name, kind in _types().items():
            with contextlib.suppress(msgspec.ValidationError):
                if name in info:
                    fields[name] = msgspec.convert(info[name], kind)
        return cls(**fields)


@lru_cache(maxsize=1)
def _types() -> dict[str, Any]:
    return get_type_hints(Heartbeat, include_extras=True)
