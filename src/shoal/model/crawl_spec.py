"""Every option of a crawl, declared once: type, range, default, meaning, flag, and who enforces it.

`Limits` has what the frontier enforces, `CrawlSpec` adds what workers enforce, `CrawlRequest` adds what only a request
has. The flags of `shoal crawl` and `shoal submit`, the schema of the HTTP API, the stored form and the tables of the
documentation are derived from these classes: a new option is one more field here, and the code that enforces it.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, field

from shoal.errors import InvalidLimit
from shoal.model.option import GROUPS, MARKED_INTERNAL, Flag, Option, declared, flag_name
from shoal.model.revisit_schedule import revisit_schedule
from shoal.model.validation import WIDEST, arguments, header_value, headers, spider, whole
from shoal.version import __version__

if TYPE_CHECKING:
    from shoal.model.crawl import Crawl

DEFAULT_USER_AGENT = "Shoal/" + __version__.rpartition(".")[0]
SCOPES = ("host", "domain", "prefix", "any")
COOKIE_JARS = ("auto", "off", "host", "domain")
LINK_KINDS = ("a", "area", "iframe", "frame", "next", "canonical", "alternate")
# Parameters that identify a visitor or a campaign and never change the page. A * at the end matches any ending.
DROPPED_PARAMETERS = (
    "utm_*", "fbclid", "gclid", "dclid", "msclkid", "yclid", "mc_cid", "mc_eid", "_ga", "_gl",
    "phpsessid", "jsessionid", "aspsessionid*", "cfid", "cftoken",
)  # fmt: skip
# Seeds that a crawl stores: they define its scope, and which origins get its cookie and credentials.
STORED_SEEDS = 1000
# Seeds of one request.
MAX_SEEDS = 50_000
# Seconds since 1970. A time in milliseconds, a common mistake, is larger.
_LATEST = 10**12
_STORED_NAMES = {"scope": "reach"}

Texts = tuple[str, ...]
Count = Annotated[int, Meta(ge=0, le=WIDEST)]


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
            description="Visit every page again after this time, e.g. 1d; or after a time between two bounds that "
            "follows how often the page changes, e.g. 1h..30d. Such a crawl does not finish.",
        ),
        Flag(
            changeable=True,
            group="crawl", metavar="TIME|FROM..TO",
            help="Visit each page again after this time, e.g. 1d, or as often as it changes, e.g. within 1h..30d.",
        ),
    ] = ""  # fmt: skip
    budget: Annotated[
        str,
        Meta(
            max_length=40,
            description="Limit of revisits per host: a share of the requests that its delay allows, e.g. 20%, or a "
            "rate, e.g. 100/h. Default: 20% with two bounds in `every`, otherwise no limit.",
        ),
        Flag(
            changeable=True,
            group="crawl", metavar="SHARE|RATE",
            help="With --every: limit of revisits per host, e.g. 20% of what its delay allows, or 100/h.",
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
        for option in options(type(self)):
            option.check(getattr(self, option.attribute))
        spider(self.spider)
        if revisit_schedule(self.every, self.budget).perpetual and (self.max_pages or self.max_pages_per_host):
            raise InvalidLimit(
                "every cannot be combined with max_pages or max_pages_per_host: a crawl that revisits its pages has no "
                "last page. Use max_depth, allow or deny to limit what it visits."
            )
        if self.order not in ("fifo", "lifo"):
            raise InvalidLimit(f"order is {self.order!r}: it must be 'fifo' or 'lifo' (depth-first).")


class CrawlSpec(Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All options of a crawl: its limits, and the options that workers enforce."""

    seeds: Annotated[Texts, Meta(description="Start URLs.")] = ()
    scope: Annotated[
        str,
        Meta(pattern=f"^({'|'.join(SCOPES)})$", description="Which links to follow, relative to the start URLs."),
        Flag(group="scope"),
    ] = "host"
    allow: Annotated[
        Texts,
        Meta(max_length=1000, description="Visit only URLs that match one of these patterns (RE2)."),
        Flag(changeable=True, group="scope", metavar="RE", help="Visit only URLs that match this pattern (RE2)."),
    ] = ()
    deny: Annotated[
        Texts,
        Meta(max_length=1000, description="Skip URLs that match one of these patterns (RE2)."),
        Flag(changeable=True, group="scope", metavar="RE", help="Skip URLs that match this pattern (RE2)."),
    ] = ()
    deny_extensions: Annotated[
        Texts,
        Meta(max_length=1000, description="Skip URLs with these extensions, e.g. zip."),
        Flag(
            changeable=True,
            group="scope",
            name="deny-extension",
            metavar="EXT",
            help="Skip URLs with this extension, e.g. zip.",
        ),
    ] = ()
    follow: Annotated[
        bool, Meta(description="Follow links."), Flag(group="scope", help="Visit only the given URLs.")
    ] = True  # fmt: skip
    links: Annotated[Texts, Meta(description="Kinds of links to follow."), MARKED_INTERNAL] = (
        "a", "area", "iframe", "frame", "next"
    )  # fmt: skip
    max_bytes: Annotated[
        Count,
        Meta(description="Stop after receiving this many bytes."),
        Flag(
            changeable=True,
            group="limits",
            metavar="N",
            size=True,
            help="Stop after receiving this many bytes, e.g. 500mb.",
        ),
    ] = 0
    max_bytes_per_host: Annotated[
        Count,
        Meta(description="Maximum number of bytes from one host; its remaining URLs are excluded."),
        Flag(
            changeable=True,
            group="limits",
            metavar="N",
            size=True,
            help="Maximum number of bytes from one host, e.g. 50mb.",
        ),
    ] = 0
    between: Annotated[
        str,
        Meta(max_length=200, description="Times of day at which the crawl runs, e.g. 22:00-06:00 Europe/Berlin."),
        Flag(
            group="politeness", metavar="TIMES",
            help="Run only at these times of day, e.g. 22:00-06:00, or 22:00-06:00 Europe/Berlin.",
        ),
    ] = ""  # fmt: skip
    retries: Annotated[
        int,
        Meta(ge=0, le=100, description="How often a failed request is retried."),
        Flag(changeable=True, group="requests", metavar="N"),
    ] = 3
    delay_factor: Annotated[
        float, Meta(ge=0, le=100, description="Response times to wait between requests, at least."), MARKED_INTERNAL
    ] = 1.0
    timeout_seconds: Annotated[
        float,
        Meta(ge=0.1, le=3600, description="Timeout of one request, in seconds."),
        Flag(changeable=True, group="requests", name="timeout", metavar="S"),
    ] = 30.0
    body_bytes: Annotated[
        int, Meta(ge=1, le=2**31 - 1, description="Bytes of a body that are read."), MARKED_INTERNAL
    ] = 10_000_000  # fmt: skip
    user_agent: Annotated[
        str,
        Meta(min_length=1, max_length=1000, description="User-Agent header."),
        Flag(group="requests", metavar="UA"),
    ] = DEFAULT_USER_AGENT
    headers: Annotated[
        dict[str, str],
        Meta(max_length=100, description="Additional request headers, sent only to the hosts of the start URLs."),
        Flag(
            group="requests", name="header", metavar="'NAME: VALUE'", separator=":",
            help="Additional request header, sent only to the hosts of the start URLs.",
        ),
    ] = {}  # fmt: skip
    headers_everywhere: Annotated[
        bool,
        Meta(description="Send `headers` to every host of the crawl, except credentials."),
        Flag(group="requests", help="Send --header to every host of the crawl, except credentials."),
    ] = False
    cookie: Annotated[
        str,
        Meta(max_length=8192, description="Cookie, sent only to the hosts of the start URLs."),
        Flag(group="requests", metavar="C"),
    ] = ""
    cookie_jar: Annotated[
        str,
        Meta(
            pattern=f"^({'|'.join(COOKIE_JARS)})$",
            description="Cookies that responses set: off, kept per host, or per domain as browsers do. "
            "auto: domain with a spider, off without one.",
        ),
        Flag(group="requests", help="Keep the cookies that responses set, per host, or per domain as browsers do."),
    ] = "auto"  # fmt: skip
    auth: Annotated[
        str,
        Meta(max_length=1024, description="Credentials (USER:PASSWORD), sent only to the hosts of the start URLs."),
        Flag(
            group="requests", metavar="USER:PASSWORD", help="Credentials, sent only to the hosts of the start URLs."
        ),
    ] = ""  # fmt: skip
    logins: Annotated[
        dict[str, str],
        Meta(description="Credentials (USER:PASSWORD) of single origins, from start URLs."),
        MARKED_INTERNAL,
    ] = {}
    ignore_robots: Annotated[
        bool, Meta(description="Ignore robots.txt. Only for your own sites."), Flag(group="politeness")
    ] = False
    by_address: Annotated[
        bool,
        Meta(description="Treat all host names of one IP address as one host."),
        Flag(group="politeness"),
    ] = False
    sitemaps: Annotated[
        bool, Meta(description="Also visit the URLs in each host's sitemaps."), Flag(group="scope")
    ] = False  # fmt: skip
    traps: Annotated[
        bool,
        Meta(description="Skip links that look like a crawler trap."),
        Flag(group="scope", off="follow-traps", help="Also follow links that look like a crawler trap."),
    ] = True
    drop_parameters: Annotated[
        Texts, Meta(description="Query parameters that are removed from links."), MARKED_INTERNAL
    ] = DROPPED_PARAMETERS  # fmt: skip
    outputs: Annotated[
        Texts,
        Meta(max_length=20, description="Output URIs, or names from [outputs] in the workers' settings."),
        Flag(
            group="output", name="out", short="-o", metavar="URI|NAME", completes_files=True,
            help="Output: a file (e.g. pages.jsonl), a database URI, or a name from [outputs]; adds to a file.",
        ),
    ] = ()  # fmt: skip
    changes: Annotated[
        Texts,
        Meta(
            max_length=5,
            description="With `every`: outputs that get a row for each page that is new, changed, gone or back; output "
            "URIs, or names from [outputs] in the workers' settings.",
        ),
        Flag(
            group="output", metavar="URI|NAME", completes_files=True,
            help="With --every: output for changes, e.g. changes.jsonl: pages that are new, changed, gone or back.",
        ),
    ] = ()  # fmt: skip
    ignore_numbers: Annotated[
        bool,
        Meta(description="With `every`: a page whose text differs only in numbers, e.g. a date, has not changed."),
        Flag(
            group="output",
            help="With --every: a page whose text differs only in numbers, e.g. a date, has not changed.",
        ),
    ] = False
    change_diffs: Annotated[
        bool,
        Meta(description="Report how the text of a page changed, as a unified diff. Needs a database in `changes`."),
        Flag(group="output", help="Report how the text of a page changed. Needs --changes with a database."),
    ] = False
    keep_versions: Annotated[
        int,
        Meta(
            ge=0, le=1000,
            description="Keep the last texts of each page, this many, in the databases in `changes`; 0 keeps none.",
        ),
        Flag(
            group="output", metavar="N", help="Keep the last N texts of each page. Needs --changes with a database."
        ),
    ] = 0  # fmt: skip
    files: Annotated[
        str,
        Meta(max_length=2048, description="Store response bodies in this folder or bucket (s3://BUCKET/PREFIX)."),
        Flag(group="output", metavar="URI"),
    ] = ""
    file_types: Annotated[
        Texts,
        Meta(max_length=100, description="Store only bodies of these content types, e.g. image/."),
        Flag(
            group="output", metavar="TYPE", commas=True,
            help="With --files: store only bodies of this content type, e.g. image/.",
        ),
    ] = ()  # fmt: skip
    fields: Annotated[
        Texts,
        Meta(max_length=1000, description="Only these fields of the spider's items, in this order."),
        Flag(
            group="output", metavar="A,B", commas=True,
            help="With --spider: only these fields of items, in this order.",
        ),
    ] = ()  # fmt: skip
    networks: Annotated[
        Texts,
        Meta(description="Networks that the command of the crawl allowed; only for the command that resumes it."),
        MARKED_INTERNAL,
    ] = ()
    machine: Annotated[str, Meta(description="Machine that output files belong to."), MARKED_INTERNAL] = ""
    revised: Annotated[
        bool,
        Meta(description="Patterns were changed after the start: URLs are checked again before they are requested."),
        MARKED_INTERNAL,
    ] = False
    parent: Annotated[
        str, Meta(description="Crawl that this crawl is a branch of; records carry that crawl's name."), MARKED_INTERNAL
    ] = ""
    app: Annotated[
        str,
        Meta(max_length=64, description="Application that the crawl belongs to."),
        Flag(group="crawl", metavar="APP", commands=("submit",)),
    ] = ""
    arguments: Annotated[
        dict[str, str],
        Meta(max_length=100, description="Arguments of the spider: attributes of the object on each worker."),
        Flag(
            group="crawl", name="argument", short="-a", metavar="NAME=VALUE", separator="=",
            help="Argument of the spider: self.NAME on each worker.",
        ),
    ] = {}  # fmt: skip
    attributes: Annotated[
        dict[str, Any],
        Meta(description="Your own data, returned with the crawl and its records."),
        Flag(
            group="crawl", name="attribute", metavar="NAME=VALUE", separator="=", commands=("submit",),
            help="Your own data, returned with the crawl and its records.",
        ),
    ] = {}  # fmt: skip
    notify: Annotated[
        str,
        Meta(max_length=2048, description="URL that gets a POST request when the crawl ends."),
        Flag(group="crawl", metavar="URL", commands=("submit",)),
    ] = ""
    notify_networks: Annotated[
        str, Meta(description="Private networks that `notify` may reach: those of the server that took the request."),
        MARKED_INTERNAL,
    ] = ""  # fmt: skip
    expired_message: Annotated[
        dict[str, str],
        Meta(description="Source and ids of the `expired` message of a Scrapy Cluster request."),
        MARKED_INTERNAL,
    ] = {}

    def check(self) -> None:
        """Raise InvalidLimit for an invalid value. Patterns and the scope are checked where they are compiled."""
        super().check()
        whole("The number of seeds", len(self.seeds), 0, STORED_SEEDS)
        for kind in self.links:
            if kind not in LINK_KINDS:
                raise InvalidLimit(f"{kind!r} in links is unknown: use {', '.join(LINK_KINDS)}.")
        if self.cookie_jar not in COOKIE_JARS:
            raise InvalidLimit(f"cookie_jar is {self.cookie_jar!r:.60}: use {', '.join(COOKIE_JARS)}.")
        for kind in self.file_types:
            if "/" not in kind:
                raise InvalidLimit(f"{kind!r:.80} in file_types is not a content type: write e.g. image/.")
        if self.every and self.max_bytes_per_host:
            raise InvalidLimit(
                "every cannot be combined with max_bytes_per_host: revisits would use it up. Use budget to limit them."
            )
        if self.ignore_numbers and not self.every:
            raise InvalidLimit("ignore_numbers needs every: a crawl that visits each page once finds no changes.")
        if self.changes and not self.every:
            raise InvalidLimit("changes needs every: a crawl that visits each page once finds no changes.")
        if (self.change_diffs or self.keep_versions) and not self.changes:
            raise InvalidLimit("change_diffs and keep_versions need changes: a database that gets the texts of pages.")
        whole("keep_versions", self.keep_versions, 0, 1000)
        if both := set(self.changes) & set(self.outputs):
            raise InvalidLimit(
                f"{min(both)!r:.80} is in outputs and in changes: name another file or table for changes."
            )
        if self.file_types and not self.files:
            raise InvalidLimit("file_types needs files: where to store the bodies.")
        if self.fields and not self.spider:
            raise InvalidLimit("fields needs a spider: pages have no items. `shoal export --fields` chooses columns.")
        if len(set(self.fields)) < len(self.fields) or not all(self.fields):
            raise InvalidLimit("fields has an empty name or one that is named twice.")
        if self.auth and ":" not in self.auth:
            raise InvalidLimit("auth has no colon between user and password.")
        for name, value in (("user_agent", self.user_agent), ("cookie", self.cookie), ("auth", self.auth)):
            header_value(name, value)
        headers(self.headers)
        arguments(self.arguments)
        if self.arguments and not self.spider:
            raise InvalidLimit("arguments need a spider: they are its attributes.")

    @property
    def changes_have_texts(self) -> bool:
        """The outputs for changes also get the texts of pages."""
        return self.change_diffs or self.keep_versions > 0

    @property
    def all_outputs(self) -> Texts:
        """Outputs for records, and outputs for changes."""
        return (*self.outputs, *self.changes)

    def limits(self) -> Limits:
        """The part that the frontier enforces."""
        return Limits(**{name: getattr(self, name) for name in Limits.__struct_fields__})

    def stored(self) -> dict[str, Any]:
        """The part that workers enforce, as the crawl stores it."""
        options: dict[str, Any] = msgspec.to_builtins(self)
        return {
            _STORED_NAMES.get(name, name): options[name]
            for name in self.__struct_encode_fields__
            if name not in Limits.__struct_encode_fields__
        }

    @classmethod
    def of(cls, crawl: Crawl) -> CrawlSpec:
        """The options of a stored crawl. A crawl that was created without any has the defaults."""
        names = {stored: name for name, stored in _STORED_NAMES.items()}
        try:
            stored = msgspec.convert({names.get(name, name): crawl.spec[name] for name in crawl.spec}, _stored_type())
        except msgspec.ValidationError as error:
            raise InvalidLimit(f"The options of crawl {crawl.id!r} are not those of this version: {error}.") from None
        spec = cls(**msgspec.structs.asdict(crawl.limits), **msgspec.structs.asdict(stored))
        spec.check()
        return spec


class CrawlRequest(CrawlSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a crawl. Only `seeds` are required; 0 and null mean no limit.

    `name` becomes the crawl's id, APP:NAME for a crawl of an application, and cannot be used by another request; a
    request without a name gets one. Sending the same request again changes nothing. An output is a URI, or a name
    from `[outputs]` in the workers' shoal.toml, so that passwords stay there. A request without outputs uses the output
    named `default` in the service's shoal.toml, and is refused if there is none. With `joins`, the
    seeds are added to the crawl of that name, whatever its options are; a crawl that finished because no URL was
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


@cache
def options(struct: type[Limits] = CrawlSpec) -> tuple[Option, ...]:
    """All options that a class declares or inherits."""
    return declared(struct, by_frontier=Limits.__struct_fields__)


def flags(command: str) -> Iterator[tuple[Option, Flag]]:
    """The options that have a flag of this command, in the order of `--help`."""
    declared = [
        (option, option.flag)
        for option in options()
        if option.flag and (option.flag.changeable if command == "change" else command in option.flag.commands)
    ]
    return iter(sorted(declared, key=lambda pair: GROUPS.index(pair[1].group)))


def flag_of(attribute: str) -> str:
    """The flag of an option, by the name of its field."""
    for option in options():
        if option.attribute == attribute:
            return f"--{flag_name(option)}"
    return f"--{attribute.replace('_', '-')}"


@cache
def _stored_type() -> Any:
    """The stored part of CrawlSpec without its ranges: those of a request do not apply to crawls made otherwise."""
    hints = typing.get_type_hints(CrawlSpec)
    return msgspec.defstruct(
        "StoredSpec",
        [
            (option.attribute, hints[option.attribute], field(default=option.default, name=option.name))
            for option in options()
            if option.enforced_by == "worker"
        ],
        kw_only=True,
        forbid_unknown_fields=True,
    )


# Options that an open crawl can change, by their attributes.
CHANGEABLE = tuple(option.attribute for option in options() if option.flag and option.flag.changeable)
INTERNAL = frozenset(option.name for option in options() if option.internal)
# The fields of a request, by their names in the HTTP API.
REQUEST_FIELDS = tuple(option.name for option in options(CrawlRequest) if not option.internal)
