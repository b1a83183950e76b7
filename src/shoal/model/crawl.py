"""A crawl: its identity, its state, its counts."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from shoal.model.limits import Limits
from shoal.model.revisit_schedule import RevisitSchedule, revisit_schedule


class State(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    EXPIRED = "expired"
    FINISHED = "finished"
    DELETED = "deleted"

    @property
    def code(self) -> str:
        """The letter that scripts use."""
        return self.value[0]

    @property
    def open(self) -> bool:
        return self in (State.RUNNING, State.PAUSED)


class CrawlKind(StrEnum):
    """Who works on a crawl."""

    OWN = "own"  # Shoal's workers write its pages to outputs
    SCRAPY = "scrapy"  # processes of a Scrapy project
    BRANCH = "branch"  # part of another crawl, for one of its spiders
    BARE = "bare"  # a program that uses the frontier directly


# The reason of a crawl that finished without reaching a limit; change.lua reopens only such a crawl.
NOTHING_LEFT = "finished"
# The reasons for which workers pause a crawl. It resumes when the output is available again.
OUTPUT_UNAVAILABLE, OUTPUT_REFUSED = "output unavailable", "output refused"

STATES = {state.code: state for state in State}


def crawl_id_of(app: str, name: str) -> str:
    """The id of a crawl by its application and name. Another application cannot see or use this id."""
    return name if not app or name.startswith(f"{app}:") else f"{app}:{name}"


class Crawl(msgspec.Struct, frozen=True):
    """A crawl as its home shard records it. `spec` belongs to the caller and is stored unchanged."""

    id: str
    key: str
    state: State
    version: int
    limits: Limits
    created_at: float
    ended_at: float = 0.0
    why: str = ""
    spec: dict[str, Any] = {}

    @property
    def parent(self) -> str:
        """The id of the crawl that this is a branch of, '' for any other kind."""
        return str(self.spec.get("parent", ""))

    @property
    def app(self) -> str:
        """The application that it belongs to, '' for none."""
        app = self.spec.get("app", "")
        return app if isinstance(app, str) else ""

    @property
    def is_complete(self) -> bool:
        """Whether it finished because no URL was left, not by a command or a limit. It can be reopened."""
        return self.state is State.FINISHED and self.why == NOTHING_LEFT

    @property
    def schedule(self) -> RevisitSchedule:
        """When its pages are visited again."""
        return revisit_schedule(self.limits.every, self.limits.budget)

    @property
    def perpetual(self) -> bool:
        """Its pages are visited again and again: it does not finish by itself."""
        return self.schedule.perpetual

    @property
    def kind(self) -> CrawlKind:
        if self.parent:
            return CrawlKind.BRANCH
        if "scrapy" in self.spec:
            return CrawlKind.SCRAPY
        return CrawlKind.OWN if "outputs" in self.spec else CrawlKind.BARE


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a crawl. In each shard, admitted = waiting + leased + later + stored + failed + excluded.

    admitted  URLs that were accepted for the crawl
    waiting   URLs in the queue
    leased    URLs that a worker has leased
    later     URLs that are due later, e.g. retries
    stored    URLs whose record was written
    failed    URLs that were given up
    excluded  URLs that were excluded
    reasons   number of URLs by final state and reason, e.g. `failed:status 404`
    """

    admitted: int = 0
    waiting: int = 0
    leased: int = 0
    later: int = 0
    stored: int = 0
    failed: int = 0
    excluded: int = 0
    reasons: dict[str, int] = {}

    @property
    def ended(self) -> int:
        return self.stored + self.failed + self.excluded

    @property
    def open(self) -> int:
        return self.waiting + self.leased + self.later
