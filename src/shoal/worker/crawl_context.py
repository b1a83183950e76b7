"""The context of one crawl in a worker: its options, compiled for use on every page.

Owns the request headers of each host, the scope and trap checks of links, and the memory of links that were added.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
from collections.abc import Mapping
from urllib.parse import quote

from shoal.errors import InvalidUrl, SinkRefused, StoreNotReady
from shoal.frontier import Frontier, mono
from shoal.leases.recent_urls import RecentUrls
from shoal.model.crawl import Crawl, State
from shoal.model.crawl_spec import CrawlSpec
from shoal.model.record import Capture, Item, Record
from shoal.model.validation import CREDENTIAL_HEADERS
from shoal.politeness.user_agent import check_token, product_token
from shoal.sinks import is_database, takes
from shoal.urls.canonical import Target, canonical
from shoal.urls.scope import Scope
from shoal.urls.traps import DomainHosts, Traps
from shoal.worker.exclusion_samples import ExclusionSamples
from shoal.worker.outside_links import OutsideLinks

_ACCEPT = ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")

# The prefix of spider names whose crawl only the calling program can run.
CALLER = "caller:"
_LANE = re.compile(r"caller:[0-9a-f]{8}:")
# Contexts kept in memory; the oldest is dropped.
_MOST_CONTEXTS = 500
# Changed options apply after this time at the latest.
_CHECK_SECONDS = 1.0
_CHECK_TIMEOUT_SECONDS = 1.0

Headers = tuple[tuple[str, str], ...]


class CrawlContext:
    def __init__(self, crawl: Crawl, named: Mapping[str, str], trapped: dict[str, int]) -> None:
        """`named` maps output names to URIs. `trapped` counts the links that are not followed, by kind of trap."""
        self.crawl = crawl
        self.policy = policy = CrawlSpec.of(crawl)
        # The crawl that records belong to: branches of other spiders are part of it.
        self.name = policy.parent or crawl.id
        lane = _LANE.match(crawl.limits.spider)
        self.lane = lane[0] if lane else ""
        self.spider = crawl.limits.spider.removeprefix(self.lane)
        self.cookie_jar = policy.cookie_jar if policy.cookie_jar != "auto" else "domain" if self.spider else "off"
        outputs = {}
        for output in policy.outputs:
            # A crawl may give the name of an output whose URI only workers know.
            uri = named.get(output, output)
            try:
                outputs[uri] = takes(uri, spider=bool(self.spider))
            except SinkRefused:
                # Opening the output reports what is wrong.
                outputs[uri] = (Record, Item)
        self.outputs = tuple(outputs.items())
        self.change_outputs = tuple(named.get(output, output) for output in policy.changes)
        # How many texts of a page are kept, and where; a difference needs the last and the one before.
        self.versions = max(policy.keep_versions, 2 if policy.change_diffs else 0)
        self.version_outputs = tuple(uri for uri in self.change_outputs if _is_database(uri)) if self.versions else ()
        files = (policy.files,) if policy.files else ()
        self.output_uris = tuple(dict.fromkeys([*outputs, *self.change_outputs, *files]))
        self.keeps_responses = bool(policy.files) or any(Capture in kinds for kinds in outputs.values())
        seeds = []
        for seed in policy.seeds:
            try:
                seeds.append(canonical(seed))
            except InvalidUrl:
                continue
        self.scope = Scope(
            policy.scope, seeds, allow=policy.allow, deny=policy.deny, deny_extensions=policy.deny_extensions
        )
        # In lower case: robots.txt compares tokens without case, and the fleet stores one copy per token.
        self.token = check_token(product_token(policy.user_agent)).lower()
        self.follow = frozenset(policy.links) if policy.follow else frozenset()
        self.recent = RecentUrls()
        self.checked_mono = mono()
        # FTP only if a seed uses it: web pages link to anything.
        self.ftp = any(seed.scheme == "ftp" for seed in seeds)
        # Commands import this module for its constants only.
        from shoal.worker.sitemaps import Sitemaps

        # A start URL may be a sitemap, also in a crawl that looks for no others.
        self.sitemap_reader = Sitemaps(seeds, self.scope, crawl.limits.max_depth)
        # A branch for another spider requests no sitemaps of its own.
        self.sitemaps = self.sitemap_reader if policy.sitemaps and not policy.parent else None
        # Their dates are signals, so a crawl that stays also reads the feeds that pages name.
        self.dated = crawl.perpetual
        if self.dated and self.sitemaps is not None and self.follow:
            self.follow |= {"feed"}
        self._traps = Traps(drop_parameters=policy.drop_parameters)
        self.cleaned = self._traps.cleaned
        self._hosts = DomainHosts() if policy.scope in ("domain", "any") else None
        self._trapped = trapped
        self.samples = ExclusionSamples()
        self.outside = OutsideLinks()
        self._origins = frozenset(seed.origin for seed in seeds)
        plain = [("User-Agent", policy.user_agent)]
        own = [(name, value) for name, value in policy.headers.items() if name.lower() not in CREDENTIAL_HEADERS]
        # Sent to the origins of the seeds only, as those of `--cookie` and `--auth` are.
        secret = [(name, value) for name, value in policy.headers.items() if name.lower() in CREDENTIAL_HEADERS]
        if policy.headers_everywhere:
            plain, own = plain + own, []
        if policy.cookie:
            secret.append(("Cookie", policy.cookie))
        if policy.auth:
            secret.append(("Authorization", _basic(policy.auth)))
        self._plain: Headers = _with_accept(plain)
        self._for_seeds: Headers = _with_accept(plain + own + secret)
        # Credentials of a start URL itself replace those of all start URLs.
        others = [header for header in secret if header[0].lower() != "authorization"]
        self._by_login: dict[str, Headers] = {
            origin: _with_accept([*plain, *own, *others, ("Authorization", _basic(login))])
            for origin, login in policy.logins.items()
        }

    def trap(self, target: Target, now: float) -> str:
        """The kind of crawler trap a URL looks like; '' if none."""
        if not self.policy.traps:
            return ""
        reason = self._traps.verdict(target, now=now)
        if not reason and self._hosts is not None:
            reason = self._hosts.verdict(target.host)
        if reason:
            self.count_trapped(reason, 1)
        return reason

    def count_trapped(self, reason: str, links: int) -> None:
        self._trapped[reason] = self._trapped.get(reason, 0) + links

    def forget_links(self) -> None:
        self.recent.clear()
        self._traps.forget()

    def headers(self, target: Target) -> Headers:
        """Credentials and custom headers are sent only to the origins of the seeds, even after redirects."""
        if self._by_login and (headers := self._by_login.get(target.origin)):
            return headers
        return self._for_seeds if target.origin in self._origins else self._plain

    def address(self, url: str, target: Target) -> str:
        """The URL to request. FTP has no headers, so that credentials are part of it."""
        login = self.policy.logins.get(target.origin) if target.scheme == "ftp" else None
        if login is None:
            return url
        user, _, password = login.partition(":")
        return f"ftp://{quote(user, safe='')}:{quote(password, safe='')}@{target.url.removeprefix('ftp://')}"


def _is_database(uri: str) -> bool:
    try:
        return is_database(uri)
    except SinkRefused:
        # Opening the output reports what is wrong.
        return False


def _basic(login: str) -> str:
    return "Basic " + base64.b64encode(login.encode()).decode()


class CrawlContexts:
    """The contexts of the crawls that this worker serves."""

    def __init__(
        self, frontier: Frontier, named: Mapping[str, str] | None = None, trapped: dict[str, int] | None = None
    ) -> None:
        self._frontier = frontier
        self._named = named or {}
        self._trapped = {} if trapped is None else trapped
        self._contexts: dict[str, CrawlContext] = {}
        frontier.on_epoch(self._forget_links)
        frontier.on_replaced(self._contexts.clear)

    async def of(self, crawl_id: str) -> CrawlContext:
        context = self._contexts.get(crawl_id)
        if context is not None and (await self._frontier.crawls.known(crawl_id)).key != context.crawl.key:
            # Deleted, and created again.
            context = None
        if context is not None and mono() - context.checked_mono > _CHECK_SECONDS:
            # Its options may have been changed. If its home shard does not respond, the known ones apply.
            context.checked_mono = mono()
            with contextlib.suppress(TimeoutError, StoreNotReady):
                async with asyncio.timeout(_CHECK_TIMEOUT_SECONDS):
                    if (await self._frontier.crawls.get(crawl_id)).version != context.crawl.version:
                        context = None
        if context is None:
            crawl = await self._frontier.crawls.known(crawl_id)
            if len(self._contexts) >= _MOST_CONTEXTS:
                del self._contexts[next(iter(self._contexts))]
            context = self._contexts[crawl_id] = CrawlContext(crawl, self._named, self._trapped)
        return context

    async def is_paused(self, context: CrawlContext) -> bool:
        """Whether the crawl is paused now. Free of cost for one that was running when it was last checked."""
        if context.crawl.state is not State.PAUSED:
            return False
        # It may have been resumed since: a lease that is released at once would be taken again at once.
        return (await self._frontier.crawls.get(context.crawl.id)).state is State.PAUSED

    def take_samples(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """New samples of excluded URLs, by the crawl that they belong to."""
        taken = [(context.name, context.samples.take()) for context in self._contexts.values()]
        return [(name, samples) for name, samples in taken if samples]

    async def branch(self, context: CrawlContext, spider: str) -> CrawlContext:
        """The branch of the same crawl for another spider."""
        return await self.of(await self._frontier.crawls.branch(context.name, context.lane + spider))

    def _forget_links(self) -> None:
        """The store may have lost recently added links: they are added again."""
        for context in self._contexts.values():
            context.forget_links()


def _with_accept(headers: list[tuple[str, str]]) -> Headers:
    return tuple(headers) if any(name.lower() == "accept" for name, _ in headers) else (*headers, _ACCEPT)


def lane_of(crawl_id: str) -> str:
    """The prefix of a crawl's spider names, so that only workers of the calling program lease its visits."""
    return f"{CALLER}{hashlib.blake2s(crawl_id.encode(), digest_size=4).hexdigest()}:"
