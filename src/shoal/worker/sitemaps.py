"""Sitemaps of one crawl: which files of a site are requested, and the visits that they lead to.

With the first page of a site that this worker visits, it adds the sitemaps that the site's robots.txt names. If there
are none and the user named the site, it adds /sitemap.xml. On its own host a sitemap need not match the crawl's
patterns; on other hosts it is requested only if it is in scope. A sitemap has the depth of the page that led to it, and
so have the sitemaps it names; its pages are one deeper.
"""

from __future__ import annotations

from collections.abc import Iterable

import ada_url

from shoal.errors import InvalidUrl
from shoal.model.visit import Visit, VisitMeta
from shoal.parse.sitemap import MAX_BYTES, Sitemap
from shoal.politeness.robots_rules import Rules
from shoal.urls.canonical import Target, canonical, parts_of
from shoal.urls.scope import Scope

# An index names sitemaps, and some indexes name further indexes without end.
MAX_NESTING = 3
MAX_FILES = 1000
_DEFAULT_PATH = "/sitemap.xml"
_REMEMBERED = 50_000
NONE = "no sitemap"


class Sitemaps:
    """The sites of one crawl that a worker has seen. Bounded: adding a file again has no effect."""

    def __init__(self, seeds: Iterable[Target], scope: Scope, max_depth: int | None) -> None:
        self._seeds = frozenset(seed.host for seed in seeds)
        self._scope = scope
        self._max_depth = max_depth
        self._seen: set[str] = set()
        self._files: dict[str, int] = {}

    def of_site(self, site: str, visit: Visit, target: Target, rules: Rules | None) -> list[Visit]:
        """The sitemaps of a site that is new to this worker. Call `meet` after they are added."""
        if site in self._seen or target.scheme == "ftp" or self._too_deep(visit):
            return []
        named = [there for text in (rules.sitemaps if rules is not None else ()) if (there := _resolved(site, text))]
        if named:
            return self.files((there.url for there in named), visit, target, nesting=0)
        if target.host in self._seeds or visit.found == "seed" or visit.notes.seed:
            guess = VisitMeta(sitemap=0, guess=True).pack()
            return [
                Visit(url=site + _DEFAULT_PATH, depth=visit.depth, priority=visit.priority, found="sitemap", meta=guess)
            ]
        return []

    def meet(self, site: str) -> None:
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen.add(site)

    def files(self, urls: Iterable[str], visit: Visit, target: Target, *, nesting: int) -> list[Visit]:
        """Visits of sitemaps that the site of `target` names; at most MAX_FILES per host."""
        visits: list[Visit] = []
        if nesting > MAX_NESTING:
            return visits
        for url in urls:
            there = parts_of(url)
            if self.refuses(there, target.host):
                continue
            count = self._files.get(there.host, 0)
            if count >= MAX_FILES:
                continue
            if len(self._files) >= _REMEMBERED:
                self._files.clear()
            self._files[there.host] = count + 1
            meta = VisitMeta(sitemap=nesting).pack()
            visits.append(Visit(url=url, depth=visit.depth, priority=visit.priority, found="sitemap", meta=meta))
        return visits

    def nested(self, read: Sitemap, visit: Visit, target: Target) -> list[Visit]:
        """The sitemaps that an index names."""
        return self.files(read.sitemaps, visit, target, nesting=(visit.notes.sitemap or 0) + 1)

    def refuses(self, there: Target, host: str) -> str:
        """Why a sitemap named on `host` may not be requested; '' if it may."""
        return "" if there.host == host else self._scope.verdict(there, seed=True)

    def _too_deep(self, visit: Visit) -> bool:
        return self._max_depth is not None and visit.depth >= self._max_depth


def body_bytes(visit: Visit, most: int) -> int:
    """The size limit of a response; the sitemap protocol has its own."""
    return max(most, MAX_BYTES) if visit.notes.sitemap is not None else most


def _resolved(site: str, text: str) -> Target | None:
    try:
        return canonical(ada_url.join_url(f"{site}/", text))
    except (InvalidUrl, ValueError, UnicodeError):
        return None
