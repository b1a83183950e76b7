"""Sitemaps of one crawl: which of a site's files are asked for, and the visits that they lead to.

A site is met with the first of its pages that this worker visits. The sitemaps its robots.txt names are visits then,
or, where it names none and the user named the site, the one at the usual place. They are about their site as robots.txt
is: on its host they need not match the crawl's patterns; elsewhere they are asked for only where the crawl goes anyway.
A sitemap is as deep as the page it was met with, and so are those it names; its pages are one deeper.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ada_url

from shoal.errors import InvalidUrl
from shoal.model.visit import Visit
from shoal.parse.sitemap import MAX_BYTES, Sitemap
from shoal.politeness.robots_parser import Rules
from shoal.urls.canonical import Target, canonical, parts_of
from shoal.urls.scope import Scope

# An index names sitemaps; some name further indexes, and some do so for ever.
MAX_NESTING = 3
MAX_FILES = 1000
_USUAL = "/sitemap.xml"
_REMEMBERED = 50_000
NONE = "no sitemap"


class Sitemaps:
    """What a worker remembers of the sites of one crawl; bounded, since to add a file again changes nothing."""

    def __init__(self, seeds: Iterable[Target], scope: Scope, max_depth: int | None) -> None:
        self._seeds = frozenset(seed.host for seed in seeds)
        self._scope = scope
        self._max_depth = max_depth
        self._met: set[str] = set()
        self._files: dict[str, int] = {}

    def of_site(self, site: str, visit: Visit, target: Target, rules: Rules | None) -> list[Visit]:
        """The sitemaps of a site that is met for the first time. Call `meet` when they are on their way."""
        if site in self._met or target.scheme == "ftp" or self._too_deep(visit):
            return []
        named = [there for text in (rules.sitemaps if rules is not None else ()) if (there := _resolved(site, text))]
        if named:
            return self.files((there.url for there in named), visit, target, nesting=0)
        if target.host in self._seeds or visit.found == "seed" or visit.meta.get("seed"):
            guess = {"sitemap": 0, "guess": True}
            return [Visit(url=site + _USUAL, depth=visit.depth, priority=visit.priority, found="sitemap", meta=guess)]
        return []

    def meet(self, site: str) -> None:
        if len(self._met) >= _REMEMBERED:
            self._met.clear()
        self._met.add(site)

    def files(self, urls: Iterable[str], visit: Visit, target: Target, *, nesting: int) -> list[Visit]:
        """Visits of sitemaps that the site of `target` names; no more than MAX_FILES of a host."""
        found: list[Visit] = []
        if nesting > MAX_NESTING:
            return found
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
            meta = {"sitemap": nesting}
            found.append(Visit(url=url, depth=visit.depth, priority=visit.priority, found="sitemap", meta=meta))
        return found

    def nested(self, read: Sitemap, visit: Visit, target: Target) -> list[Visit]:
        """The sitemaps that an index names."""
        return self.files(read.sitemaps, visit, target, nesting=nesting_of(visit.meta) + 1)

    def refuses(self, there: Target, host: str) -> str:
        """'' when a sitemap named on `host` may be asked for, else why not."""
        return "" if there.host == host else self._scope.verdict(there, seed=True)

    def _too_deep(self, visit: Visit) -> bool:
        return self._max_depth is not None and visit.depth >= self._max_depth


def nesting_of(meta: dict[str, Any]) -> int:
    """How many indexes led to this one. It comes from the store: what is no number is one too many."""
    nesting = meta.get("sitemap", 0)
    return nesting if isinstance(nesting, int) else MAX_NESTING


def body_bytes(visit: Visit, most: int) -> int:
    """How large an answer may be: the protocol of sitemaps has a size of its own."""
    return max(most, MAX_BYTES) if "sitemap" in visit.meta else most


def _resolved(site: str, text: str) -> Target | None:
    try:
        return canonical(ada_url.join_url(f"{site}/", text))
    except (InvalidUrl, ValueError, UnicodeError):
        return None
