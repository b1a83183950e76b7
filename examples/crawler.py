"""A polite crawler of one site, in 30 lines: python examples/crawler.py http://127.0.0.1:8000/

Pages become files in the current folder, the frontier is kept in `.shoal`. Start it twice and both share the work; kill
it and start it again, and it resumes. docs/guides/first-crawler.md explains every line.
"""

import asyncio
import sys
from pathlib import Path
from urllib import parse, request

from shoal import Frontier


class NoRedirect(request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None: ...


web = request.build_opener(NoRedirect)


async def crawl(*seeds: str, worker: str = "", lease_seconds: float = 60) -> None:
    async with await Frontier.open(worker=worker, lease_seconds=lease_seconds) as frontier:
        await frontier.crawls.create("example", exist_ok=True)
        await frontier.add("example", seeds)
        while not await frontier.crawls.finished("example"):
            for lease in await frontier.lease(hosts=1, visits=4, wait_seconds=1):
                for visit in lease.visits:
                    try:
                        page = await asyncio.to_thread(web.open, visit.url, None, 10)
                        body = (await asyncio.to_thread(page.read)).decode(errors="replace")
                        links = [parse.urljoin(visit.url, part.split('"')[0]) for part in body.split('href="')[1:]]
                        links = [link for link in links if parse.urlsplit(link).netloc == lease.host]
                        await frontier.add("example", links, skip_invalid=True)
                        await asyncio.to_thread(Path(parse.quote(visit.url, "")).write_text, body)
                        await frontier.acknowledge(lease, [visit.stored()])
                    except Exception as error:
                        await frontier.acknowledge(lease, [visit.failed(ascii(error))])
                    await asyncio.sleep(lease.delay_seconds)
        print(await frontier.crawls.count("example"))


if __name__ == "__main__":
    asyncio.run(crawl(*sys.argv[1:]))
