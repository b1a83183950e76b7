"""A request for a crawl: all options of a crawl, and the fields that only a request has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shoal.model.crawl_options import INTERNAL, options
from shoal.model.crawl_spec import CrawlSpec, Texts

# Seeds of one request.
MAX_SEEDS = 50_000
# Seconds since 1970. A time in milliseconds, a common mistake, is larger.
_LATEST = 10**12


class CrawlRequest(CrawlSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a crawl. Only `seeds` are required; 0 and null mean no limit.

    `name` becomes the crawl's id, APP:NAME for a crawl of an application, and cannot be used by another request; a
    request without a name gets one. Sending the same request again changes nothing. An output is a URI, or a name
    from `[outputs]` in the workers' shoal.toml, so that passwords stay there. A request without outputs uses the output
    named `default` in the service's shoal.toml, and is refused if there is none. With `joins`, the
    seeds are added to the crawl of that name, regardless of its options; a crawl that finished because no URL was
    left is reopened.
    """

    seeds: Annotated[Texts, Meta(min_length=1, max_length=MAX_SEEDS, description="Start URLs.")]
    name: Annotated[str, Meta(max_length=128, description="The crawl's id, with `app` APP:NAME; '' generates one.")] = (
        ""
    )
    domains: Annotated[
        Texts, Meta(max_length=500, description="With scope domain: further domains besides those of the seeds.")
    ] = ()
    spider: Annotated[
        str, Meta(max_length=64, description="Spider, by its name on the workers; '' for none.")
    ] = ""  # fmt: skip
    expires_at: Annotated[
        float, Meta(ge=0, le=_LATEST, description="When the crawl expires, in seconds since 1970; 0 is never.")
    ] = 0.0
    joins: Annotated[bool, Meta(description="Add the seeds to the crawl of this name if it exists.")] = False

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> CrawlRequest:
        """A request by the names of the HTTP API. msgspec.ValidationError for an invalid one."""
        for name in fields:
            if name in INTERNAL:
                raise msgspec.ValidationError(f"Object contains unknown field `{name}`")
        return msgspec.convert(dict(fields), cls)


# The fields of a request, by their names in the HTTP API.
REQUEST_FIELDS = tuple(option.name for option in options(CrawlRequest) if not option.internal)
