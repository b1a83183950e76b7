"""Submitting a crawl: parse a request, check it, create the crawl, add its seeds.

The command line, the HTTP API, bridges and Python use the same request and the same checks. Everything is checked
before the first write. Must not wait for a crawl: it returns at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import hashlib
import ipaddress
import re
import secrets
import time
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from shoal.errors import (
    CrawlEnded,
    CrawlExists,
    InvalidInput,
    InvalidLimit,
    SinkRefused,
    SinkUnavailable,
    UnknownCrawl,
)
from shoal.fetch.address_guard import AddressGuard
from shoal.frontier import Frontier
from shoal.frontier.inspect import store_seconds
from shoal.model import validation
from shoal.model.crawl import Crawl, State, crawl_id_of
from shoal.model.crawl_options import options
from shoal.model.crawl_request import REQUEST_FIELDS, CrawlRequest
from shoal.model.crawl_spec import STORED_SEEDS, CrawlSpec
from shoal.model.visit import Visit
from shoal.operations.scrapy_cluster import ClusterAction, ClusterRequest, translate
from shoal.operations.scrapy_cluster_fleet import DOMAIN_ACTIONS, DomainUpdate, StatsRequest
from shoal.operations.seeds import seed_target, without_logins
from shoal.operations.start import check_spec
from shoal.operations.time_windows import keep_to_windows
from shoal.settings import Settings, masked
from shoal.sinks import check_output, is_name
from shoal.sinks.bodies import check_files
from shoal.sinks.contract import Holds
from shoal.sinks.reader import page
from shoal.sinks.registry import parse_output
from shoal.spider import Spider
from shoal.urls.canonical import canonical

MAX_REQUEST_BYTES = 4_000_000
_MAX_REOPENINGS = 5
_CHECK_SECONDS = 5.0
_MAX_PATTERN_CHARACTERS = 100_000
# Fields that belong to one crawl, not to all crawls of a spider.
_NOT_OF_SPIDERS = ("seeds", "name", "spider", "arguments", "joins", "domains", "expires_at", "app")
_APP = re.compile(r"[A-Za-z0-9_.@-]{0,64}\Z")


# Attributes are repeated in every record that the API returns.
MAX_ATTRIBUTES_BYTES = 16_384


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """The crawl of a request.

    id       id of the crawl
    created  false if the crawl already existed: the same request was sent before, or its seeds joined the crawl
    """

    id: str
    created: bool


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request: the crawl to create, and the URLs to add to it."""

    name: str
    spec: CrawlSpec
    urls: list[str]
    joins: bool = False
    # Whether the request named the crawl. A generated name is used by no other crawl.
    named: bool = False


def parse(
    raw: bytes | dict[str, Any], spiders: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> CrawlRequest | ClusterAction | StatsRequest | DomainUpdate:
    """A request in Shoal's or Scrapy Cluster's schema. InvalidInput says in one sentence what is wrong with it.

    `spiders` are the options of spiders (spider_options.py). They fill in fields that the request does not have, so
    they cannot set fields that its sender may not set.
    """
    fields = _decode(raw) if isinstance(raw, bytes | bytearray | memoryview) else raw
    if not isinstance(fields, dict):
        raise InvalidInput(f'A request is {_kind(fields)}: it must be a JSON object, such as {{"seeds": [...]}}.')
    try:
        if isinstance(action := fields.get("action"), str) and action in DOMAIN_ACTIONS:
            return msgspec.convert(fields, DomainUpdate)
        if "stats" in fields or fields.keys() == {"appid", "uuid"}:
            return msgspec.convert(fields, StatsRequest)
        if "action" in fields:
            return msgspec.convert(fields, ClusterAction)
        if "crawlid" in fields or "appid" in fields:
            return translate(msgspec.convert(fields, ClusterRequest))
        if isinstance(spider := fields.get("spider"), str) and spider in spiders:
            fields = {**spiders[spider], **fields}
        return CrawlRequest.of_fields(fields)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidInput(f"The request cannot be used: {error}.") from None


def to_submission(request: CrawlRequest, *, machine: str = "", networks: str = "") -> Submission:
    """Check a request. `machine` is the machine that output files belong to, if there are any.

    `networks` are the private networks that its notification may reach, as `fetch.allow_networks` lists them. They are
    stored: the process that sends the notification may be allowed more than the one that took the request.
    """
    targets = [seed_target(seed) for seed in request.seeds]
    urls, logins = without_logins(list(dict.fromkeys(target.url for target in targets)))
    spec = to_spec(request, urls, machine=machine, networks=networks)
    spec = msgspec.structs.replace(spec, logins=logins)
    name = request.name or f"{generated_name(targets[0].host, 40 if request.app else 90)}-{secrets.token_hex(3)}"
    name = validation.crawl_id(crawl_id_of(request.app, name))
    return Submission(name=name, spec=spec, urls=urls, joins=request.joins, named=bool(request.name))


def to_spec(request: CrawlRequest, urls: Sequence[str], *, machine: str = "", networks: str = "") -> CrawlSpec:
    """The checked options of a request, in the form that a crawl stores. `urls` are its canonical seeds.

    `machine` is the machine that output files belong to, `networks` are the private networks of its notification.
    """
    fields = {name: getattr(request, name) for name in CrawlSpec.__struct_fields__}
    fields |= {
        "seeds": tuple([*_domain_urls(request), *urls][:STORED_SEEDS]),
        # With a delay of 0, a slow response does not cause a delay either.
        "delay_factor": 1.0 if request.delay_seconds else 0.0,
        "files": check_files(request.files) if request.files else "",
        "file_types": tuple(content_type.strip().lower() for content_type in request.file_types),
        "outputs": tuple(output if is_name(output) else check_output(output) for output in request.outputs),
        "changes": tuple(output if is_name(output) else check_output(output) for output in request.changes),
        "notify": _notify_url(request.notify, networks),
        "notify_networks": networks if request.notify else "",
        "machine": machine,
    }
    spec = CrawlSpec(**fields)
    # Checked before the patterns are compiled, which takes a second per megabyte.
    if sum(map(len, (*spec.allow, *spec.deny, *spec.deny_extensions))) > _MAX_PATTERN_CHARACTERS:
        raise InvalidInput(f"allow, deny and deny_extensions have more than {_MAX_PATTERN_CHARACTERS:,} characters.")
    check_spec(spec)
    if len(msgspec.json.encode(spec.attributes)) > MAX_ATTRIBUTES_BYTES:
        raise InvalidInput(f"attributes have more than {MAX_ATTRIBUTES_BYTES:,} bytes as JSON.")
    if not _APP.match(spec.app):
        raise InvalidLimit("Invalid app: use up to 64 letters, digits and . _ @ -.")
    return spec


def spider_settings(spider: type[Spider]) -> dict[str, Any]:
    """The options that a spider sets for its crawls, by their attributes. InvalidInput for one that is not valid."""
    given = dict(spider.settings)
    where = f"settings of spider {spider.__name__}"
    check_terms(given.keys(), where, allowed=[field for field in REQUEST_FIELDS if field not in _NOT_OF_SPIDERS])
    try:
        request = CrawlRequest.of_fields({"seeds": ("http://example.org/",), **given})
    except msgspec.ValidationError as error:
        raise InvalidInput(f"Invalid {where}: {error}.") from None
    return {option.attribute: getattr(request, option.attribute) for option in options() if option.name in given}


def check_terms(terms: Collection[str], where: str, allowed: Sequence[str] = REQUEST_FIELDS) -> None:
    """Raise InvalidInput for names that are not fields of a crawl request."""
    for term in terms:
        if term not in allowed:
            longer = [field for field in allowed if field.startswith(f"{term}_")]
            near = longer or difflib.get_close_matches(term, allowed, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidInput(f"{where} has no argument {term}{hint} (docs/reference/api.md).")


def with_output(request: CrawlRequest, named: Collection[str], *, as_in: str) -> CrawlRequest:
    """Return the request with its own outputs, or with the output named `default`. InvalidInput if there is none.

    `named` are the outputs of the settings here. If there are none, the workers check the names.
    """
    for output in request.all_outputs:
        if named and is_name(output) and output not in named:
            raise InvalidInput(f"Unknown output {output!r}; the outputs are {', '.join(sorted(named))}.")
    if not request.outputs:
        if "default" not in named:
            raise InvalidInput(f"No output: pass e.g. {as_in}, or name an output `default` in [outputs] of shoal.toml.")
        request = msgspec.structs.replace(request, outputs=("default",))
    return request


def check_message(
    request: CrawlRequest, body: bytes, *, message_id: str, outputs: Collection[str]
) -> CrawlRequest:  # fmt: skip
    """Check a request of an unauthenticated sender: it may use only named outputs, and must obey robots.txt.

    Returns the request. One without a name gets a name from its message, the same for every delivery.
    """
    if request.ignore_robots:
        raise InvalidInput("ignore_robots is not allowed here: only an administrator can set it, with `shoal submit`.")
    if request.files or not all(map(is_name, request.all_outputs)):
        # The message may contain a password, so it is not quoted.
        raise InvalidInput("outputs must be names in [outputs]; only an administrator can use other outputs or files.")
    request = with_output(request, outputs, as_in='"outputs": ["NAME"] in the request')
    if not request.name and message_id:
        # The hash distinguishes messages of a topic that was created again.
        prefix = re.sub(r"[^A-Za-z0-9_.-]", "-", message_id)[-100:].lstrip("-.")
        request = msgspec.structs.replace(request, name=f"{prefix}-{hashlib.sha256(body).hexdigest()[:10]}")
    return request


async def submit_message(frontier: Frontier, body: bytes, *, message_id: str, settings: Settings) -> Submitted:
    """Submit the crawl request in a message of a queue. Delivering it again changes nothing."""
    request = parse(body)
    if not isinstance(request, CrawlRequest):
        raise InvalidInput("Only crawl requests are accepted here; send actions to the HTTP API or a bridge.")
    request = check_message(request, body, message_id=message_id, outputs=settings.outputs)
    submission = to_submission(request, networks=settings.fetch.allow_networks)
    return await submit(frontier, submission, outputs=settings.outputs)


async def submit(
    frontier: Frontier, submission: Submission, *, outputs: Mapping[str, str] | None = None
) -> Submitted:  # fmt: skip
    """Create a crawl for the workers of a store. Submitting it again changes nothing.

    Raises CrawlExists if a different crawl has its name. With `outputs`, the outputs of the settings by name, also if
    databases among its outputs already have records under its name.
    """
    if outputs is not None and submission.named:
        await _check_no_records(frontier, submission, outputs)
    created, same = True, False
    try:
        await _create(frontier, submission)
    except CrawlExists:
        crawl = await frontier.crawls.get(submission.name)
        same = _same(crawl, submission)
        if not (same or (submission.joins and _may_join(crawl, submission))):
            raise
        if not crawl.state.open and (same or not crawl.is_complete):
            return Submitted(id=submission.name, created=False)
        created = False
    if created:
        # No command owns it, so none pauses it when it is interrupted.
        await frontier.crawls.facts.mark_submitted(submission.name)
        await keep_to_windows(frontier, await frontier.crawls.get(submission.name))
    # Also if the crawl existed: the process that created it may have died before this.
    try:
        await _add(frontier, submission)
    except CrawlEnded:
        # It ended after it was read: the same request changes nothing then, either.
        if not same:
            raise
    return Submitted(id=submission.name, created=created)


async def _check_no_records(frontier: Frontier, submission: Submission, outputs: Mapping[str, str]) -> None:
    """Raise CrawlExists if a crawl of another store has written records under the same name.

    Records are identified by the name, so readers of this crawl would see them. Only databases are checked, by an
    index: files would have to be read as a whole. An unavailable database must not delay a submission.
    """
    try:
        await frontier.crawls.get(submission.name)
        return
    except UnknownCrawl:
        pass
    # One deadline for all outputs, because a client waits for the response.
    deadline = asyncio.get_running_loop().time() + _CHECK_SECONDS
    for output in submission.spec.outputs:
        uri = outputs.get(output, output)
        with contextlib.suppress(UnknownCrawl, SinkRefused, SinkUnavailable, InvalidInput, TimeoutError):
            if is_name(uri) or parse_output(uri).technology.holds is not Holds.TABLES:
                continue
            async with asyncio.timeout_at(deadline):
                rows, _ = await page(uri, submission.name, 1, columns=("crawl", "url"))
            if rows:
                raise CrawlExists(
                    f"The output {masked(output)!r} already has records of another crawl {submission.name!r}; choose "
                    "another name."
                )


async def _create(frontier: Frontier, submission: Submission) -> None:
    if 0 < submission.spec.expires_at <= await store_seconds(frontier):
        # The crawl would make no request, and its id could not be used again. A repeated submission is accepted.
        try:
            await frontier.crawls.get(submission.name)
        except UnknownCrawl:
            raise InvalidInput("expires_at is in the past: pass a later time, or none.") from None
    await frontier.crawls.create(submission.name, submission.spec.limits(), submission.spec.stored())


async def _add(frontier: Frontier, submission: Submission) -> None:
    visits = [Visit(url=url, found="seed") for url in submission.urls]
    for _ in range(_MAX_REOPENINGS):
        try:
            await frontier.add(submission.name, visits)
            return
        except CrawlEnded:
            crawl = await frontier.crawls.get(submission.name)
            if not submission.joins or not (crawl.state is State.RUNNING or crawl.is_complete):
                raise
        # Maintenance may finish the crawl before the URLs are added: then it is reopened. resume() also completes a
        # state change that has not reached every shard.
        await frontier.crawls.resume(submission.name)
    await frontier.add(submission.name, visits)


def _same(crawl: Crawl, submission: Submission) -> bool:
    """Whether the crawl was created by this submission.

    Expiry and networks are not compared: the expiry may have changed since, and another server, which can reach other
    networks, may have received the submission.
    """
    given = submission.spec
    try:
        stored = CrawlSpec.of(crawl)
        return given == msgspec.structs.replace(
            stored, expires_at=given.expires_at, notify_networks=given.notify_networks
        )
    except InvalidLimit:
        return False


def _may_join(crawl: Crawl, submission: Submission) -> bool:
    """Whether the seeds may join the crawl. A crawl that was stopped accepts only its own seeds: a repeated message."""
    if crawl.app != submission.spec.app:
        return False
    return crawl.state.open or crawl.is_complete or set(submission.urls) <= set(crawl.spec.get("seeds", ()))


def _domain_urls(request: CrawlRequest) -> list[str]:
    """URLs that represent `domains` among the seeds. They extend the scope and are not visited."""
    if request.domains and request.scope != "domain":
        raise InvalidInput(f"domains need scope 'domain', but the scope is {request.scope!r}.")
    return [canonical(f"http://{domain}/").url for domain in request.domains]


def _notify_url(url: str, networks: str) -> str:
    if not url:
        return ""
    target = canonical(url)
    if target.scheme not in ("http", "https"):
        raise InvalidInput("notify must be a URL that starts with http:// or https://.")
    address = _literal_address(target.host)
    if address and (reason := AddressGuard(networks).refuses(address, 80)):
        raise InvalidInput(
            f"notify must not reach {address} ({reason} address); the operator of the server can allow a private "
            "network with --allow-network."
        )
    return target.url


def _literal_address(host: str) -> str:
    """The IP address that a host is written as, '' for a name."""
    text = host.removeprefix("[").partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def generated_name(host: str, max_host: int = 100) -> str:
    """A name for a crawl that has none: its first host, cut at `max_host` characters, and the local time."""
    host = re.sub(r"[^A-Za-z0-9_.-]+", "-", host).strip("-")
    return f"{host[:max_host]}-{time.strftime('%Y%m%d-%H%M%S')}"


def _decode(raw: bytes | bytearray | memoryview) -> Any:
    if len(raw) > MAX_REQUEST_BYTES:
        raise InvalidInput(f"The request has {len(raw):,} bytes; the limit is {MAX_REQUEST_BYTES:,}.")
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The request is not JSON: {error}.") from None


def _kind(value: object) -> str:
    return {list: "an array", str: "a string", type(None): "null"}.get(type(value), "a single value")
