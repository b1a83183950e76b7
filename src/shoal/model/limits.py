"""The options of a crawl that the frontier enforces, each with its type, range, default, meaning and flag.

`CrawlSpec` adds the options that workers enforce. A limit declared here is a field of it, too.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated

import msgspec
from msgspec import Meta

from shoal.errors import InvalidLimit
from shoal.model.option import MARKED_INTERNAL, Flag, Option, declared
from shoal.model.revisit_schedule import revisit_schedule
from shoal.model.validation import WIDEST, Count, spider


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The options that the frontier enforces for a crawl. None and 0 mean no limit."""

    delay_seconds: Annotated[
        float,
        Meta(ge=0, le=86400, description="Seconds from the end of a request to the next request to the same host."),
        Flag(changeable=True, group="politeness", name="delay", metavar="S"),
    ] = 1.0
    places: Annotated[
        int,
        Meta(ge=1, le=32, description="Concurrent requests to one host."),
        Flag(changeable=True, group="politeness", name="per-host", metavar="N"),
    ] = 1
    priority: Annotated[
        int,
        Meta(ge=-10, le=10, description="Higher-priority crawls are served first."),
        Flag(changeable=True, group="crawl", metavar="N"),
    ] = 0
    max_pages: Annotated[
        Count, Meta(description="Stop after this many pages."), Flag(changeable=True, group="limits", metavar="N")
    ] = 0  # fmt: skip
    max_pages_per_host: Annotated[
        Count,
        Meta(description="Maximum number of pages from one host."),
        Flag(changeable=True, group="limits", metavar="N"),
    ] = 0
    max_depth: Annotated[
        Count | None,
        Meta(description="Maximum link depth from the start URLs."),
        Flag(changeable=True, group="limits", metavar="N"),
    ] = None
    max_urls_per_depth: Annotated[
        Count,
        Meta(description="Maximum number of URLs of one host at each link depth; start URLs are not counted."),
        Flag(changeable=True, group="limits", metavar="N"),
    ] = 0
    max_seconds: Annotated[
        float,
        Meta(ge=0, le=10**9, description="Stop after this time, in seconds since the crawl was created."),
        Flag(
            changeable=True,
            group="limits", name="max-time", metavar="TIME", duration=True,
            help="Stop when this time has passed since the crawl was created, e.g. 90s, 30m or 2h.",
        ),
    ] = 0.0  # fmt: skip
    every: Annotated[
        str,
        Meta(
            max_length=40,
            description="Revisit every page after this time, e.g. 1d, or as often as it changes within two bounds, "
            "e.g. 1h..30d. Such a crawl does not finish.",
        ),
        Flag(
            changeable=True,
            group="crawl", metavar="TIME|FROM..TO",
            help="Revisit every page after this time, e.g. 1d, or as often as it changes, e.g. within 1h..30d.",
        ),
    ] = ""  # fmt: skip
    budget: Annotated[
        str,
        Meta(
            max_length=40,
            description="Limit on revisits per host: a share of the requests that its delay allows, e.g. 20%, or a "
            "rate, e.g. 100/h. Default: 20% with two bounds in `every`, otherwise no limit.",
        ),
        Flag(
            changeable=True,
            group="crawl", metavar="SHARE|RATE",
            help="With --every: limit on revisits per host, e.g. 20% of the requests that its delay allows, or 100/h.",
        ),
    ] = ""  # fmt: skip
    order: Annotated[str, Meta(description="fifo, or lifo for depth-first."), MARKED_INTERNAL] = "fifo"
    expires_at: Annotated[
        float, Meta(ge=0, le=WIDEST / 1000, description="When the crawl expires, in seconds since 1970; 0 is never.")
    ] = 0.0
    dedup_seconds: Annotated[
        float,
        Meta(ge=0, le=10**10, description="How long a URL is remembered; 0 means without limit."),
        MARKED_INTERNAL,
    ] = 0.0
    spider: Annotated[str, Meta(description="Name of the spider that parses the pages; '' for none.")] = ""

    def check(self) -> None:
        """Raise InvalidLimit, with the option's name and value, for a value out of range."""
        for option in options_of(type(self)):
            option.check(getattr(self, option.attribute))
        spider(self.spider)
        if revisit_schedule(self.every, self.budget).perpetual and (self.max_pages or self.max_pages_per_host):
            raise InvalidLimit(
                "every cannot be combined with max_pages or max_pages_per_host: a crawl that revisits its pages has no "
                "last page. Use max_depth, allow or deny to limit what it visits."
            )
        if self.order not in ("fifo", "lifo"):
            raise InvalidLimit(f"order is {self.order!r}: it must be 'fifo' or 'lifo' (depth-first).")


@cache
def options_of(struct: type[Limits]) -> tuple[Option, ...]:
    """All options that a class declares or inherits."""
    return declared(struct, by_frontier=Limits.__struct_fields__)
