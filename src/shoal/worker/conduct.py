"""How a worker behaves for one crawl: its policy with everything compiled that a page needs.

Owns whom we say we are, what each host is told, which links are followed, and the memory of links that were added.
"""

from __future__ import annotations

import base64

from shoal.errors import InvalidUrl
from shoal.frontier import Frontier
from shoal.model.crawl import Crawl
from shoal.model.policy import Policy
from shoal.politeness.robots import check_token
from shoal.urls.canonical import Target, canonical
from shoal.urls.scope import Scope
from shoal.worker.recent import Recent

_ACCEPT = ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
# What `--header` gives for one site must not reach another: the same as `--cookie` and `--auth`.
_SECRET = frozenset({"authorization", "cookie", "proxy-authorization"})

Headers = tuple[tuple[str, str], ...]


class Conduct:
    def __init__(self, crawl: Crawl) -> None:
        self.crawl = crawl
        self.policy = policy = Policy.of(crawl.spec)
        seeds = []
        for seed in policy.seeds:
            try:
                seeds.append(canonical(seed))
            except InvalidUrl:
                continue
        self.scope = Scope(
            policy.reach, seeds, allow=policy.allow, deny=policy.deny, deny_extensions=policy.deny_extensions
        )
        # In lower case: the name is compared without case, and the fleet keeps one copy of each robots.txt.
        self.token = check_token(product(policy.user_agent)).lower()
        self.follow = frozenset(policy.links) if policy.follow else frozenset()
        self.recent = Recent()
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

    def headers(self, target: Target) -> Headers:
        """Secrets go to the origins of the seeds and nowhere else, whatever redirects to where."""
        return self._known if origin(target) in self._origins else self._plain


class Conducts:
    """The crawls this worker has met."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self._known: dict[str, Conduct] = {}

    async def of(self, crawl_id: str) -> Conduct:
        known = self._known.get(crawl_id)
        if known is None:
            known = self._known[crawl_id] = Conduct(await self._frontier.crawls.known(crawl_id))
        return known

    def forget_links(self) -> None:
        """The store may have lost the last links it was given: they are added again."""
        for conduct in self._known.values():
            conduct.recent.clear()


def product(user_agent: str) -> str:
    """The product token: what stands before the first slash or space."""
    return user_agent.partition("/")[0].partition(" ")[0]


def origin(target: Target) -> str:
    """Scheme, host and port, in the URL's own spelling."""
    return target.url[: target.url.find("/", len(target.scheme) + 3)]
