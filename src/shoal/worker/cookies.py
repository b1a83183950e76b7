"""The cookies of the crawls that a worker serves: which a request sends, and what a response changes.

Jars are in the store and shared by the fleet. A worker checks the version of a jar before every request, and stores
what a response has set before it follows up on the response: the next page of a login, on whichever worker, has it.
"""

from __future__ import annotations

import time

from shoal.errors import CrawlEnded, InvalidInput, StoreCorrupt, UnknownCrawl
from shoal.fetch import cookies
from shoal.frontier import Frontier
from shoal.urls.canonical import Target
from shoal.urls.scope import domain_of
from shoal.worker.crawl_context import CrawlContext

# Jars kept in memory; the oldest is read again.
_MOST_KNOWN = 1000
# After this many tries, the change is dropped: other workers change the jar all the time, and they write it, too.
_MOST_TRIES = 10


# The crawl was deleted or has ended, or the stored value is not a jar of Shoal.
_NO_JAR = (UnknownCrawl, CrawlEnded, StoreCorrupt, InvalidInput)


class CrawlCookies:
    def __init__(self, frontier: Frontier) -> None:
        self._jars = frontier.cookie_jars
        # Version and content by the crawl's id and the jar's name.
        self._known: dict[tuple[str, str], tuple[int, cookies.Jar]] = {}

    async def header(self, context: CrawlContext, target: Target, given: dict[str, str]) -> str:
        """The cookies of the next request, as its header. `given` are those that its spider adds to the jar."""
        name = _jar_name(context, target)
        if not name:
            return ""
        try:
            _, jar = await self._read(context, name)
            if given:
                jar = await self._change(context, name, lambda jar: cookies.given(jar, target, given, time.time()))
        except _NO_JAR:
            return ""
        return cookies.sent(jar, target, time.time())

    async def receive(self, context: CrawlContext, target: Target, headers: list[str]) -> bool:
        """Keep what a response sets. Returns whether that changes the cookies of the crawl."""
        name = _jar_name(context, target) if headers else ""
        if not name:
            return False
        host_only = context.cookie_jar == "host"
        try:
            before = (await self._read(context, name))[1]
            after = await self._change(
                context, name, lambda jar: cookies.received(jar, target, headers, time.time(), host_only=host_only)
            )
        except _NO_JAR:
            return False
        return after != before

    async def _read(self, context: CrawlContext, name: str) -> tuple[int, cookies.Jar]:
        known = self._known.pop((context.name, name), (0, ()))
        version, content = await self._jars.read(context.name, name, known[0])
        if version != known[0]:
            known = (version, cookies.unpack(content))
        return self._keep(context, name, *known)

    async def _change(self, context: CrawlContext, name: str, change: cookies.Change) -> cookies.Jar:
        """Write a jar with a change; it is made again if another worker has changed the jar. Returns the jar."""
        version, jar = self._known[context.name, name]
        for _ in range(_MOST_TRIES):
            changed = change(jar)
            if changed is jar:
                break
            if written := await self._jars.write(context.name, name, version, cookies.pack(changed)):
                return self._keep(context, name, written, changed)[1]
            before = version
            version, jar = await self._read(context, name)
            if version == before:
                # There is no room, or the crawl has ended.
                break
        return jar

    def _keep(self, context: CrawlContext, name: str, version: int, jar: cookies.Jar) -> tuple[int, cookies.Jar]:
        if len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[context.name, name] = (version, jar)
        return version, jar


def _jar_name(context: CrawlContext, target: Target) -> str:
    """The jar that has all cookies of a host; '' if the crawl keeps none."""
    if context.cookie_jar == "off" or target.scheme not in ("http", "https"):
        return ""
    return target.host if context.cookie_jar == "host" else domain_of(target.host)
