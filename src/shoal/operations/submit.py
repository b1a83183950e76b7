"""Crawl requests: what somebody asks for, in one schema for the command line, the API and bridges.

Owns the schema, the reading of Scrapy Cluster's own requests into it, and the handing over to the fleet. Everything is
checked before the first write. Must not wait for a crawl: whoever submits one is answered at once.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Collection
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shoal.errors import CrawlEnded, CrawlExists, InvalidInput, InvalidLimit, UnknownCrawl
from shoal.frontier import Frontier
from shoal.frontier.inspect import store_seconds
from shoal.model import validation
from shoal.model.crawl import Crawl, Limits, State
from shoal.model.crawl_spec import DEFAULT_USER_AGENT, Policy
from shoal.model.visit import Visit
from shoal.operations.scrapy_cluster import Action, app_of, cluster_name, spider_of
from shoal.operations.seeds import seed_url
from shoal.operations.start import check
from shoal.sinks import check_output, is_name
from shoal.sinks.bodies import check_files
from shoal.urls.canonical import canonical
from shoal.urls.scope import domain_of

MAX_REQUEST_BYTES = 4_000_000
MAX_SEEDS = 50_000
_KEPT_SEEDS = 1000
_REOPENINGS = 5
_APP = re.compile(r"[A-Za-z0-9_.@-]{0,64}\Z")

Texts = tuple[str, ...]
Count = Annotated[int, Meta(ge=0, le=2**53)]


class CrawlRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A crawl that somebody asks for. Only `seeds` are needed; 0 and null mean no limit.

    `name` is the crawl's id, for ever; without one it gets one. The same request again changes nothing.
    An output is a URI, or the name of one in `[outputs]` of the workers' shoal.toml, which keeps its password there.
    Without one, what the service's own shoal.toml names `default` is meant; where it names none, the crawl is refused.
    With `joins`, the seeds are added to the crawl of that name, whatever its rules are; one that is finished because
    nothing was left is opened again.
    """

    seeds: Annotated[Texts, Meta(min_length=1, max_length=MAX_SEEDS, description="URLs to begin with.")]
    name: Annotated[str, Meta(max_length=128, description="The crawl's id; '' for a new one.")] = ""
    app: Annotated[str, Meta(max_length=64, description="Whose crawl it is.")] = ""
    spider: Annotated[str, Meta(max_length=64, description="A spider by its name on the workers; '' for none.")] = ""
    scope: Annotated[str, Meta(pattern="^(host|domain|prefix|any)$", description="How far from the seeds.")] = "host"
    domains: Annotated[Texts, Meta(max_length=500, description="With scope domain: more than those of the seeds.")] = ()
    allow: Annotated[Texts, Meta(description="Visit only URLs that match one of these (RE2).")] = ()
    deny: Annotated[Texts, Meta(description="Visit no URL that matches one of these (RE2).")] = ()
    deny_extensions: Annotated[Texts, Meta(description="Visit no URL that ends so, as in zip.")] = ()
    follow: bool = True
    sitemaps: bool = False
    traps: Annotated[bool, Meta(description="Do not follow links that only endless sites have.")] = True
    max_depth: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    priority: Annotated[int, Meta(ge=-10, le=10, description="Higher ones first.")] = 0
    max_pages: Count = 0
    max_pages_per_host: Count = 0
    max_bytes: Count = 0
    expires_at: Annotated[float, Meta(ge=0, le=10**12, description="Seconds since 1970; 0 is never.")] = 0.0
    delay_seconds: Annotated[float, Meta(ge=0, le=86400)] = 1.0
    places: Annotated[int, Meta(ge=1, le=32, description="Requests open at once to one host.")] = 1
    timeout_seconds: Annotated[float, Meta(ge=0.1, le=3600)] = 30.0
    retries: Annotated[int, Meta(ge=0, le=100)] = 3
    user_agent: Annotated[str, Meta(min_length=1, max_length=1000)] = DEFAULT_USER_AGENT
    headers: Annotated[dict[str, str], Meta(max_length=100)] = {}
    cookie: Annotated[str, Meta(max_length=8192)] = ""
    auth: Annotated[str, Meta(max_length=1024)] = ""
    outputs: Annotated[Texts, Meta(max_length=20, description="URIs, or names of the workers' [outputs].")] = ()
    files: Annotated[str, Meta(max_length=2048, description="Keep bodies there: a folder, or s3://BUCKET/PREFIX.")] = ""
    file_types: Annotated[Texts, Meta(max_length=100, description="Keep only bodies of these, as in image/.")] = ()
    by_address: Annotated[bool, Meta(description="All names of one address are one host.")] = False
    notify: Annotated[str, Meta(max_length=2048, description="URL that is told of the end by a POST.")] = ""
    attributes: Annotated[dict[str, Any], Meta(description="Given back with the crawl and its records.")] = {}
    ignore_robots: bool = False
    joins: bool = False


class _ClusterCrawl(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A crawl request of Scrapy Cluster, as its schema has it."""

    url: str
    appid: Annotated[str, Meta(min_length=1, max_length=100)]
    crawlid: Annotated[str, Meta(min_length=1, max_length=100)]
    spiderid: str | None = None
    maxdepth: int | None = None
    priority: int | None = None
    allowed_domains: list[str] | None = None
    allow_regex: list[str] | None = None
    deny_regex: list[str] | None = None
    deny_extensions: list[str] | None = None
    expires: float | None = None
    useragent: str | None = None
    cookie: str | None = None
    attrs: dict[str, Any] | None = None
    domain_max_pages: int | None = None


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """`created` is False when the crawl was there already: the same request came again, or it joined it."""

    id: str
    created: bool


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """A request as a crawl has it, with everything checked."""

    name: str
    limits: Limits
    policy: Policy
    urls: list[str]


def parse(raw: bytes | dict[str, Any]) -> CrawlRequest | Action:
    """A request of ours or of Scrapy Cluster; InvalidInput says in one sentence what is wrong with it."""
    asked = _decoded(raw) if isinstance(raw, bytes | bytearray | memoryview) else raw
    if not isinstance(asked, dict):
        raise InvalidInput(f'A request is {_kind(asked)}: it must be a JSON object, such as {{"seeds": [...]}}.')
    try:
        if "action" in asked:
            return msgspec.convert(asked, Action)
        if "crawlid" in asked or "appid" in asked:
            return _translated(msgspec.convert(asked, _ClusterCrawl))
        return msgspec.convert(asked, CrawlRequest)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidInput(f"The request cannot be used: {error}.") from None


def settle(request: CrawlRequest, *, machine: str = "") -> Settled:
    """The crawl that is asked for. `machine` is where outputs that are files belong, if there are any."""
    urls = list(dict.fromkeys(seed_url(seed) for seed in request.seeds))
    limits = Limits(
        delay_seconds=request.delay_seconds, places=request.places, priority=request.priority,
        max_pages=request.max_pages, max_pages_per_host=request.max_pages_per_host, max_depth=request.max_depth,
        expires_at=request.expires_at, spider=request.spider,
    )  # fmt: skip
    policy = Policy(
        seeds=tuple([*_fronts(request), *urls][:_KEPT_SEEDS]), reach=request.scope, allow=request.allow,
        deny=request.deny, deny_extensions=request.deny_extensions, follow=request.follow, sitemaps=request.sitemaps,
        traps=request.traps, max_bytes=request.max_bytes, retries=request.retries,
        timeout_seconds=request.timeout_seconds,
        # Who wants no delay does not want one that follows from slow answers either.
        delay_factor=1.0 if request.delay_seconds else 0.0,
        user_agent=request.user_agent, headers=request.headers, cookie=request.cookie, auth=request.auth,
        ignore_robots=request.ignore_robots, by_address=request.by_address,
        files=check_files(request.files) if request.files else "",
        file_types=tuple(one.strip().lower() for one in request.file_types),
        outputs=tuple(_output(one) for one in request.outputs),
        machine=machine, app=request.app, attributes=request.attributes, notify=_notify(request.notify),
    )  # fmt: skip
    limits.check()
    check(policy)
    if not _APP.match(request.app):
        raise InvalidLimit("app has other characters than letters, digits and . _ @ -, or more than 64 of them.")
    return Settled(name=validation.crawl_id(request.name or _made(urls[0])), limits=limits, policy=policy, urls=urls)


def with_output(request: CrawlRequest, named: Collection[str], *, as_in: str) -> CrawlRequest:
    """The request with its own outputs, or with the one that is named `default`: pages must not go nowhere unasked.

    `named` are those of the settings here. Without any, names are left to the workers, who may know more.
    """
    for output in request.outputs:
        if named and is_name(output) and output not in named:
            raise InvalidInput(f"There is no output {output!r}; there are {', '.join(sorted(named))}.")
    if not request.outputs:
        if "default" not in named:
            raise InvalidInput(
                f"Say where the pages go, as with {as_in}, or name an output `default` in [outputs] of shoal.toml."
            )
        request = msgspec.structs.replace(request, outputs=("default",))
    return request


async def submit(frontier: Frontier, request: CrawlRequest, *, machine: str = "") -> Submitted:
    """Hand a crawl to the fleet. The same request again changes nothing; its name for another crawl is CrawlExists."""
    wanted = settle(request, machine=machine)
    created = True
    try:
        await _create(frontier, wanted)
    except CrawlExists:
        crawl = await frontier.crawls.get(wanted.name)
        same = _same(crawl, wanted)
        if not (same or (request.joins and _may_join(crawl, wanted))):
            raise
        if not crawl.state.open and (same or not _was_done(crawl)):
            return Submitted(id=wanted.name, created=False)
        created = False
    if created:
        # It belongs to no command that could be interrupted.
        await frontier.crawls.facts.mark_submitted(wanted.name)
    # Also when it was there: whoever created it may have died before this.
    await _add(frontier, wanted, joins=request.joins)
    return Submitted(id=wanted.name, created=created)


async def _create(frontier: Frontier, wanted: Settled) -> None:
    if 0 < wanted.limits.expires_at <= await store_seconds(frontier):
        # It would ask for nothing, and its id would be used up. What came before may come again.
        try:
            await frontier.crawls.get(wanted.name)
        except UnknownCrawl:
            raise InvalidInput("The time at which the crawl is to end is past: send a later one, or none.") from None
    await frontier.crawls.create(wanted.name, wanted.limits, wanted.policy.spec())


async def _add(frontier: Frontier, wanted: Settled, *, joins: bool) -> None:
    visits = [Visit(url=url, found="seed") for url in wanted.urls]
    for _ in range(_REOPENINGS):
        try:
            await frontier.add(wanted.name, visits)
            return
        except CrawlEnded:
            crawl = await frontier.crawls.get(wanted.name)
            if not joins or not (crawl.state is State.RUNNING or _was_done(crawl)):
                raise
        # Whoever tends crawls may find that nothing is left before the URLs are there: then it is opened once more.
        # One that runs at home and not yet in every shard is brought there.
        await frontier.crawls.resume(wanted.name)
    await frontier.add(wanted.name, visits)


def _same(crawl: Crawl, wanted: Settled) -> bool:
    """An end that was set later is not what was asked for."""
    limits = msgspec.structs.replace(crawl.limits, expires_at=wanted.limits.expires_at)
    try:
        return limits == wanted.limits and Policy.of(crawl.spec) == wanted.policy
    except InvalidLimit:
        return False


def _may_join(crawl: Crawl, wanted: Settled) -> bool:
    """Of one that was ended, only what it had already: a message that came twice."""
    if crawl.spec.get("app", "") != wanted.policy.app:
        return False
    return crawl.state.open or _was_done(crawl) or set(wanted.urls) <= set(crawl.spec.get("seeds", ()))


def _was_done(crawl: Crawl) -> bool:
    """Whether it ended because nothing was left, and not by a person or a limit."""
    return crawl.state is State.FINISHED and crawl.why == "finished"


def _translated(asked: _ClusterCrawl) -> CrawlRequest:
    """Scrapy Cluster's words in ours. It follows links to every domain unless some are named."""
    priority = 1 if asked.priority is None else asked.priority
    domains = [domain.strip().lower().strip(".") for domain in asked.allowed_domains or ()]
    return CrawlRequest(
        seeds=(asked.url,), name=cluster_name(asked.appid, asked.crawlid), app=app_of(asked.appid),
        spider=spider_of(asked.spiderid),
        scope="domain" if domains else "any", domains=tuple(domains), allow=_allowed(domains, asked.allow_regex or []),
        deny=tuple(asked.deny_regex or ()), deny_extensions=tuple(asked.deny_extensions or ()),
        # Its 1 to 100 in our 0 to 10: what has the usual 1 comes in the usual order.
        max_depth=asked.maxdepth or 0, priority=max(0, min(10, round(priority / 10))),
        max_pages_per_host=asked.domain_max_pages or 0, expires_at=asked.expires or 0.0,
        user_agent=asked.useragent or DEFAULT_USER_AGENT, cookie=asked.cookie or "",
        attributes=asked.attrs or {}, joins=True,
    )  # fmt: skip


def _allowed(domains: list[str], patterns: list[str]) -> Texts:
    """Scope knows registrable domains; narrower ones, such as docs.example.org, are seen to by patterns."""
    if all(domain_of(domain) == domain for domain in domains):
        return tuple(patterns)
    names = "|".join(re.escape(domain) for domain in domains)
    place = rf"^[a-z]+://(?:[^/?#@]*[.@])?(?:{names})(?::[0-9]+)?(?:[/?#]|$)"
    return tuple(f"{place}.*(?:{pattern.removeprefix('^')})" for pattern in patterns) or (place,)


def _fronts(request: CrawlRequest) -> list[str]:
    """What stands for a domain among the seeds, which say what the scope is; they are not visited for that."""
    if request.domains and request.scope != "domain":
        raise InvalidInput(f"domains are given with scope {request.scope!r}: they belong to scope 'domain'.")
    return [canonical(f"http://{domain}/").url for domain in request.domains]


def _output(output: str) -> str:
    return output if is_name(output) else check_output(output)


def _notify(url: str) -> str:
    if not url:
        return ""
    target = canonical(url)
    if target.scheme not in ("http", "https"):
        raise InvalidInput("notify is not a URL that begins with http:// or https://.")
    return target.url


def _made(url: str) -> str:
    host = re.sub(r"[^A-Za-z0-9_.-]+", "-", canonical(url).host).strip("-")
    return f"{host[:90]}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def _decoded(raw: bytes | bytearray | memoryview) -> Any:
    if len(raw) > MAX_REQUEST_BYTES:
        raise InvalidInput(f"The request has {len(raw):,} bytes: it may have {MAX_REQUEST_BYTES:,}.")
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The request is not JSON: {error}.") from None


def _kind(value: object) -> str:
    return {list: "an array", str: "a string", type(None): "null"}.get(type(value), "a single value")
