"""Every option of a crawl, declared once: type, range, default, meaning, flag, and who enforces it.

`Limits` has the options that the frontier enforces, `CrawlSpec` adds those that workers enforce, `CrawlRequest` adds
those that only a request has. The flags of `shoal crawl` and `shoal submit`, the schema of the HTTP API, the stored
form and the tables of the documentation are derived from these classes: a new option is one more field of one of them
(in `limits.py`, here or in `crawl_request.py`), and the code that enforces it.
"""

from __future__ import annotations

import typing
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, field

from shoal.errors import InvalidLimit
from shoal.model.limits import Limits, options_of
from shoal.model.option import MARKED_INTERNAL, Flag
from shoal.model.validation import Count, arguments, header_value, headers, whole
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
_STORED_NAMES = {"scope": "reach"}

Texts = tuple[str, ...]


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
    ] = field(default_factory=dict)  # fmt: skip
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
    ] = field(default_factory=dict)
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
    ] = field(default_factory=dict)  # fmt: skip
    attributes: Annotated[
        dict[str, Any],
        Meta(description="Your own data, returned with the crawl and its records."),
        Flag(
            group="crawl", name="attribute", metavar="NAME=VALUE", separator="=", commands=("submit",),
            help="Your own data, returned with the crawl and its records.",
        ),
    ] = field(default_factory=dict)  # fmt: skip
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
    ] = field(default_factory=dict)

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
            raise InvalidLimit("fields has an empty or duplicate name.")
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


@cache
def _stored_type() -> Any:
    """The stored part of CrawlSpec without ranges: ranges of requests do not apply to crawls created in other ways."""
    hints = typing.get_type_hints(CrawlSpec)
    return msgspec.defstruct(
        "StoredSpec",
        [
            (option.attribute, hints[option.attribute], field(default=option.default, name=option.name))
            for option in options_of(CrawlSpec)
            if option.enforced_by == "worker"
        ],
        kw_only=True,
        forbid_unknown_fields=True,
    )
