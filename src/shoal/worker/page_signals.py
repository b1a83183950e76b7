"""Signals in sitemaps and feeds of a perpetual crawl: which of their dates say that a page has changed."""

from __future__ import annotations

import hashlib
import heapq

from shoal.errors import InvalidUrl
from shoal.frontier.signals import Signal, SignalKind
from shoal.model.visit import Visit
from shoal.parse.sitemap import FEEDS, Sitemap
from shoal.urls.canonical import Target, parts_of
from shoal.worker.outcome import PageSignals

# Signals of one visit of one file; the newest count.
_MOST = 1000
_DAY_SECONDS = 86400.0
# A date that is older than the last visit of the file by more than this was a signal at that visit. Caches, time zones
# and dates without a time cause shorter delays.
_LATE_SECONDS = 2 * _DAY_SECONDS


def signals_of(listed: Sitemap, visit: Visit, target: Target, now: float) -> PageSignals | None:
    """The pages of the file's own host that may have changed since they were visited; None at its first visit.

    The frontier compares each date with the last visit of the page.
    """
    if visit.history is None or not listed.changed_at:
        return None
    since = visit.history.last_visited - _LATE_SECONDS
    dated = ((at, url) for url, at in listed.changed_at.items() if since < at < now + _DAY_SECONDS)
    # A file is not trusted about the pages of another host.
    own = ((at, url) for at, url in dated if _host(url) == target.host)
    signals = [Signal(url, at) for at, url in heapq.nlargest(_MOST, own)]
    kind = SignalKind.FEED if listed.kind in FEEDS else SignalKind.SITEMAP
    return PageSignals(kind, signals) if signals else None


def listed_hash(listed: Sitemap) -> str:
    """A hash of the entries of a file, in place of its text."""
    lines = (f"{url} {listed.changed_at.get(url, 0):.0f}\n" for url in (*listed.urls, *listed.sitemaps))
    return hashlib.blake2b("".join(lines).encode(errors="surrogatepass"), digest_size=5).hexdigest()


def _host(url: str) -> str:
    try:
        return parts_of(url).host
    except InvalidUrl:
        return ""
