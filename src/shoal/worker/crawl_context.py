"""How a worker behaves for one crawl: its policy with everything compiled that a page needs.

Owns whom we say we are, what each host is told, which links are followed, and the memory of links that were added.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from shoal.errors import InvalidUrl, SinkRefused
from shoal.frontier import Frontier
from shoal.leases.recent_urls import RecentUrls
from shoal.model.crawl import Crawl
from shoal.model.crawl_spec import CrawlSpec
from shoal.model.record import Capture, Item, Record
from shoal.politeness.robots_parser import check_token
from shoal.sinks import takes
from shoal.urls.canonical import Target, canonical
from shoal.urls.scope import Scope
from shoal.urls.traps import DomainHosts, Traps

if TYPE_CHECKING:
    from shoal.worker.sitemaps import Sitemaps

_ACCEPT = ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
# What `--header` gives for one site must not reach another: the same as `--cookie` and `--auth`.
_SECRET = frozenset({"authorization", "cookie", "proxy-authorization"})

# Before the name of a spider whose crawl only one program can run: the one that takes its records.
CALLER = "caller:"
_LANE = re.compile(r"caller:[0-9a-f]{8}:")
# Crawls that this worker has met; what it knows of the first of them is given up.
_MOST_KNOWN = 500

Headers = tuple[tuple[str, str], ...]


class CrawlContext:
    def __init__(self, crawl: Crawl, named: Mapping[str, str], trapped: dict[str, int]) -> None:
        """`named` are outputs by the names that crawls may give in their place.

        `trapped` counts links that are not followed, by the kind of trap.
        """
        self.crawl = crawl
        self.policy = policy = CrawlSpec.of(crawl)
        # What records say: what one spider sends to another is still of one crawl.
        self.name = policy.parent or crawl.id
        lane = _LANE.match(crawl.limits.spider)
        self.lane = lane[0] if lane else ""
        self.spider = crawl.limits.spider.removeprefix(self.lane)
        wanted = {}
        for output in policy.outputs:
            # Its name, where what it stands for is known to workers alone.
            uri = named.get(output, output)
            try:
                wanted[uri] = takes(uri, spider=bool(self.spider))
            except SinkRefused:
                # What is wrong with it is said by whoever opens it.
                wanted[uri] = (Record, Item)
        self.outputs = tuple(wanted.items())
        self.places = (*wanted, policy.files) if policy.files else tuple(wanted)
        self.keeps_answers = bool(policy.files) or any(Capture in kinds for kinds in wanted.values())
        seeds = []
        for seed in policy.seeds:
            try:
                seeds.append(canonical(seed))
            except InvalidUrl:
                continue
        self.scope = Scope(
            policy.scope, seeds, allow=policy.allow, deny=policy.deny, deny_extensions=policy.deny_extensions
        )
        # In lower case: the name is compared without case, and the fleet keeps one copy of each robots.txt.
        self.token = check_token(product(policy.user_agent)).lower()
        self.follow = frozenset(policy.links) if policy.follow else frozenset()
        self.recent = RecentUrls()
        # FTP is spoken where a seed asks for it; pages of the web may point to anything.
        self.ftp = any(seed.scheme == "ftp" for seed in seeds)
        self.sitemaps: Sitemaps | None = None
        # The crawl that a spider branches off asks for no sitemaps of its own.
        if policy.sitemaps and not policy.parent:
            # A command needs this module for its names alone.
            from shoal.worker.sitemaps import Sitemaps

            self.sitemaps = Sitemaps(seeds, self.scope, crawl.limits.max_depth)
        self._traps = Traps(drop_parameters=policy.drop_parameters)
        self.cleaned = self._traps.cleaned
        self._hosts = DomainHosts() if policy.scope in ("domain", "any") else None
        self._trapped = trapped
        self._origins = frozenset(origin(seed) for seed in seeds)
        plain = [("User-Agent", policy.user_agent), _ACCEPT]
        plain += [(name, value) for name, value in policy.headers.items() if name.lower() not in _SECRET]
        secret = [(name, value) for name, value in policy.headers.items() if name.lower() in _SECRET]
        if policy.cookie:
            secret.append(("Cookie", policy.cookie))
        if policy.auth:
            secret.append(("Authorization", "Basic " + base64.b64encode(policy.auth.encode()).decode()))
        self._plain: Headers = tuple(plain)
        self._known: Headers = tuple(plain + secret)

    def trap(self, target: Target, now: float) -> str:
        """'' for a URL in scope that may be visited, else which trap it is."""
        if not self.policy.traps:
            return ""
        reason = self._traps.verdict(target, now=now)
        if not reason and self._hosts is not None:
            reason = self._hosts.verdict(target.host)
        if reason:
            self._trapped[reason] = self._trapped.get(reason, 0) + 1
        return reason

    def forget_links(self) -> None:
        self.recent.clear()
        self._traps.forget()

    def headers(self, target: Target) -> Headers:
        """Secrets go to the origins of the seeds and nowhere else, whatever redirects to where."""
        return self._known if origin(target) in self._origins else self._plain


class CrawlContexts:
    """The crawls this worker has met."""

    def __init__(
        self, frontier: Frontier, named: Mapping[str, str] | None = None, trapped: dict[str, int] | None = None
    ) -> None:
        self._frontier = frontier
        self._named = named or {}
        self._trapped = {} if trapped is None else trapped
        self._known: dict[str, CrawlContext] = {}

    async def of(self, crawl_id: str) -> CrawlContext:
        known = self._known.get(crawl_id)
        if known is None:
            crawl = await self._frontier.crawls.known(crawl_id)
            if len(self._known) >= _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            known = self._known[crawl_id] = CrawlContext(crawl, self._named, self._trapped)
        return known

    async def branch(self, conduct: CrawlContext, spider: str) -> CrawlContext:
        """Where the same crawl goes on with another spider."""
        return await self.of(await self._frontier.crawls.branch(conduct.name, conduct.lane + spider))

    def forget_links(self) -> None:
        """The store may have lost the last links it was given: they are added again."""
        for conduct in self._known.values():
            conduct.forget_links()


def lane_of(crawl_id: str) -> str:
    """What stands before the names of a crawl's spiders, so that no worker but its caller's takes its visits."""
    return f"{CALLER}{hashlib.blake2s(crawl_id.encode(), digest_size=4).hexdigest()}:"


def product(user_agent: str) -> str:
    """The product token: what stands before the first slash or space."""
    return user_agent.partition("/")[0].partition(" ")[0]


def origin(target: Target) -> str:
    """Scheme, host and port, in the URL's own spelling."""
    return target.url[: target.url.find("/", len(target.scheme) + 3)]
