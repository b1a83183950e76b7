"""Cookie jars of crawls, one per host or domain, each as bytes with a version. `shoal.fetch.cookies` defines the bytes.

A jar is in the shard of the host or domain that it is named after. A write names the version that was read: if two
workers change a jar at the same time, one of them has to read it again, and no cookie is lost.
"""

from __future__ import annotations

from shoal.errors import CrawlEnded
from shoal.frontier.crawls import Crawls
from shoal.frontier.scripts import Status
from shoal.frontier.shards import Shards

# Jars of one crawl in one shard. The cookies of further hosts are not kept.
MOST_JARS = 10_000


class CookieJars:
    """Reached as `frontier.cookie_jars`."""

    def __init__(self, shards: Shards, crawls: Crawls) -> None:
        self._shards = shards
        self._crawls = crawls

    async def read(self, crawl_id: str, name: str, version: int = 0) -> tuple[int, bytes]:
        """The version of a jar, 0 for none, and its content: b'' if the caller has this version."""
        crawl = await self._crawls.known(crawl_id)
        reply = await self._shards.call("read_cookies", self._shards.of(name), (crawl.key, name, version))
        return reply[1], reply[2]

    async def write(self, crawl_id: str, name: str, version: int, jar: bytes) -> int:
        """Replace the jar of this version. Returns the new version; 0 if there is another one, or no room."""
        crawl = await self._crawls.known(crawl_id)
        shard = self._shards.of(name)
        args = (crawl.key, name, version, MOST_JARS, jar)
        # Replicated: the effects of a login must not outlive its cookie.
        reply = await self._shards.call("write_cookies", shard, args, replicated=True)
        if reply[0] == Status.UNKNOWN:
            try:
                await self._crawls.introduce(crawl_id, shard)
            except CrawlEnded:
                return 0
            reply = await self._shards.call("write_cookies", shard, args, replicated=True)
        return int(reply[1]) if reply[0] == Status.OK else 0
