"""The code that a user of each crawler writes for each task: commands, and a program if one is needed.

`$URL` is the start URL, `$PYTHON` the Python of this environment. Each is written as its own documentation suggests, as
short as possible without tricks, and for speed: no delay unless the task requires one. A tool that cannot do a task
has the reason instead.
"""

from __future__ import annotations

from typing import NamedTuple


class Program(NamedTuple):
    """Commands of a shell, and the program `task.py` that they run; or why there is none."""

    commands: str = ""
    code: str = ""
    cannot: str = ""

    @property
    def lines(self) -> int:
        """The number of lines that are neither empty nor comments."""
        text = f"{self.commands}\n{self.code}".splitlines()
        return sum(bool(line.strip()) and not line.strip().startswith("#") for line in text)


_SHOAL = "shoal crawl $URL --delay 0 --name task --out out.jsonl"
_SCRAPY = "scrapy runspider task.py -a url=$URL -O out.jsonl -s LOG_ENABLED=0"
_CRAWLEE = "$PYTHON task.py $URL"
_WGET2 = "wget2 -q --progress=none -r -l 0 --robots=off"

_SCRAPY_SITE = """
import scrapy
from scrapy.linkextractors import LinkExtractor

class Task(scrapy.Spider):
    name = "task"
    def __init__(self, url):
        self.start_urls = [url]
        self.allowed_domains = [url.split("/")[2].split(":")[0]]
    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        for link in LinkExtractor().extract_links(response):
            yield response.follow(link, self.parse)
"""
_CRAWLEE_SITE = """
import asyncio, sys
from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler

async def main():
    crawler = ParselCrawler(concurrency_settings=ConcurrencySettings(desired_concurrency=16))
    @crawler.router.default_handler
    async def page(context):
        await context.push_data({"url": context.request.url, "title": context.selector.css("title::text").get()})
        await context.enqueue_links(strategy="same-hostname")
    await crawler.run([sys.argv[1]])
    await crawler.export_data("out.json")

asyncio.run(main())
"""

TASKS: dict[str, dict[str, Program]] = {
    "every page of a site, URL and title, as JSON lines": {
        "Shoal": Program(_SHOAL),
        "Scrapy": Program(_SCRAPY, _SCRAPY_SITE),
        "Crawlee": Program(_CRAWLEE, _CRAWLEE_SITE),
        "wget2": Program(cannot="stores files, extracts nothing"),
    },
    "everything below one path, as files": {
        "Shoal": Program("shoal crawl ${URL}docs/ --scope prefix --delay 0 --files out"),
        "Scrapy": Program(
            "scrapy runspider task.py -a url=${URL}docs/ -s LOG_ENABLED=0",
            """
import pathlib, scrapy
from scrapy.linkextractors import LinkExtractor

class Task(scrapy.Spider):
    name = "task"
    def __init__(self, url):
        self.start_urls, self.below = [url], url
        pathlib.Path("out").mkdir()
    def parse(self, response):
        name = response.url.removeprefix(self.below).replace("/", "_") or "index"
        pathlib.Path("out", name).write_bytes(response.body)
        for link in LinkExtractor().extract_links(response):
            if link.url.startswith(self.below):
                yield response.follow(link, self.parse)
""",
        ),
        "Crawlee": Program(
            "$PYTHON task.py ${URL}docs/",
            """
import asyncio, pathlib, sys
from crawlee import ConcurrencySettings, Glob
from crawlee.crawlers import ParselCrawler

async def main():
    below = sys.argv[1]
    pathlib.Path("out").mkdir()
    crawler = ParselCrawler(concurrency_settings=ConcurrencySettings(desired_concurrency=16))
    @crawler.router.default_handler
    async def page(context):
        name = context.request.url.removeprefix(below).replace("/", "_") or "index"
        pathlib.Path("out", name).write_bytes(await context.http_response.read())
        await context.enqueue_links(include=[Glob(f"{below}**")])
    await crawler.run([below])

asyncio.run(main())
""",
        ),
        "wget2": Program(f"{_WGET2} -np -nH -P out ${{URL}}docs/"),
    },
    "entries of a list with a next page, as items": {
        "Shoal": Program(
            "shoal crawl ${URL}list1 --spider task.py:Task --delay 0 --out out.jsonl",
            """
import shoal

class Task(shoal.Spider):
    def parse(self, page):
        for entry in page.css("li"):
            yield {"name": entry.css_first("b").text(), "price": entry.css_first("i").text()}
        yield from page.follow("a.next")
""",
        ),
        "Scrapy": Program(
            "scrapy runspider task.py -a url=${URL}list1 -O out.jsonl -s LOG_ENABLED=0",
            """
import scrapy

class Task(scrapy.Spider):
    name = "task"
    def __init__(self, url):
        self.start_urls = [url]
    def parse(self, response):
        for entry in response.css("li"):
            yield {"name": entry.css("b::text").get(), "price": entry.css("i::text").get()}
        yield from response.follow_all(css="a.next")
""",
        ),
        "Crawlee": Program(
            "$PYTHON task.py ${URL}list1",
            """
import asyncio, sys
from crawlee.crawlers import ParselCrawler

async def main():
    crawler = ParselCrawler()
    @crawler.router.default_handler
    async def page(context):
        for entry in context.selector.css("li"):
            await context.push_data({"name": entry.css("b::text").get(), "price": entry.css("i::text").get()})
        await context.enqueue_links(selector="a.next")
    await crawler.run([sys.argv[1]])
    await crawler.export_data("out.json")

asyncio.run(main())
""",
        ),
        "wget2": Program(cannot="extracts nothing"),
    },
    "a paginated JSON API, as items": {
        "Shoal": Program(
            "shoal crawl ${URL}api1 --spider task.py:Task --delay 0 --out out.jsonl",
            """
import shoal

class Task(shoal.Spider):
    def parse(self, page):
        answer = page.json()
        yield from answer["results"]
        if answer["next"]:
            yield page.visit(answer["next"])
""",
        ),
        "Scrapy": Program(
            "scrapy runspider task.py -a url=${URL}api1 -O out.jsonl -s LOG_ENABLED=0",
            """
import scrapy

class Task(scrapy.Spider):
    name = "task"
    def __init__(self, url):
        self.start_urls = [url]
    def parse(self, response):
        answer = response.json()
        yield from answer["results"]
        if answer["next"]:
            yield response.follow(answer["next"])
""",
        ),
        "Crawlee": Program(
            "$PYTHON task.py ${URL}api1",
            """
import asyncio, json, sys
from urllib.parse import urljoin
from crawlee.crawlers import HttpCrawler

async def main():
    crawler = HttpCrawler()
    @crawler.router.default_handler
    async def page(context):
        answer = json.loads(await context.http_response.read())
        await context.push_data(answer["results"])
        if answer["next"]:
            await context.add_requests([urljoin(context.request.url, answer["next"])])
    await crawler.run([sys.argv[1]])
    await crawler.export_data("out.json")

asyncio.run(main())
""",
        ),
        "wget2": Program(cannot="reads no JSON"),
    },
    "the images of a page, as files": {
        "Shoal": Program(
            "shoal crawl ${URL}images --spider task.py:Task --delay 0 --files out --file-types image/",
            """
import shoal

class Task(shoal.Spider):
    def parse(self, page):
        yield from page.follow("img")
""",
        ),
        "Scrapy": Program(
            "scrapy runspider task.py -a url=${URL}images -s LOG_ENABLED=0",
            """
import scrapy

class Task(scrapy.Spider):
    name = "task"
    custom_settings = {"ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1}, "FILES_STORE": "out"}
    def __init__(self, url):
        self.start_urls = [url]
    def parse(self, response):
        yield {"file_urls": [response.urljoin(src) for src in response.css("img::attr(src)").getall()]}
""",
        ),
        "Crawlee": Program(
            "$PYTHON task.py ${URL}images",
            """
import asyncio, pathlib, sys
from urllib.parse import urljoin
from crawlee.crawlers import ParselCrawler

async def main():
    pathlib.Path("out").mkdir()
    crawler = ParselCrawler()
    @crawler.router.default_handler
    async def page(context):
        for src in context.selector.css("img::attr(src)").getall():
            response = await context.send_request(urljoin(context.request.url, src))
            pathlib.Path("out", src.rpartition("/")[2]).write_bytes(await response.read())
    await crawler.run([sys.argv[1]])

asyncio.run(main())
""",
        ),
        "wget2": Program("wget2 -q --progress=none -p -nH -P out ${URL}images"),
    },
    "stop with Ctrl-C and resume, each page once": {
        "Shoal": Program("shoal crawl $URL --delay 0.02 --name task --out out.jsonl"),
        "Scrapy": Program(
            "scrapy runspider task.py -a url=$URL -o out.jsonl -s LOG_ENABLED=0 -s JOBDIR=job -s DOWNLOAD_DELAY=0.02",
            _SCRAPY_SITE,
        ),
        "Crawlee": Program(
            "CRAWLEE_PURGE_ON_START=0 $PYTHON task.py $URL",
            _CRAWLEE_SITE.replace(
                "desired_concurrency=16", "desired_concurrency=1, max_concurrency=1, max_tasks_per_minute=3000"
            ),
        ),
        "wget2": Program(cannot="keeps no queue: a second run starts over"),
    },
    "visit again, transfer only what has changed": {
        "Shoal": Program(f"{_SHOAL}\nshoal crawl --name task --again"),
        "Scrapy": Program(
            f"{_SCRAPY} -s HTTPCACHE_ENABLED=1 -s HTTPCACHE_POLICY=scrapy.extensions.httpcache.RFC2616Policy\n"
            f"{_SCRAPY} -s HTTPCACHE_ENABLED=1 -s HTTPCACHE_POLICY=scrapy.extensions.httpcache.RFC2616Policy",
            _SCRAPY_SITE,
        ),
        "Crawlee": Program(cannot="sends no conditional requests"),
        "wget2": Program(f"{_WGET2} -N $URL\n{_WGET2} -N $URL"),
    },
    "five hosts at once, robots.txt obeyed, 0.2 s between requests to a host": {
        "Shoal": Program("shoal crawl $URLS --delay 0.2 --out out.jsonl"),
        "Scrapy": Program(
            'scrapy runspider task.py -a urls="$URLS" -O out.jsonl -s LOG_ENABLED=0 -s ROBOTSTXT_OBEY=1 '
            "-s DOWNLOAD_DELAY=0.2 -s RANDOMIZE_DOWNLOAD_DELAY=0 -s CONCURRENT_REQUESTS_PER_DOMAIN=1",
            _SCRAPY_SITE.replace("def __init__(self, url):", "def __init__(self, urls):")
            .replace("self.start_urls = [url]", "self.start_urls = urls.split()")
            .replace('[url.split("/")[2].split(":")[0]]', '[url.split("/")[2].split(":")[0] for url in urls.split()]'),
        ),
        "Crawlee": Program(cannot="has a delay for all hosts together, not for each"),
        "wget2": Program(
            "for url in $URLS; do wget2 -q --progress=none -r -l 0 --wait=0.2 --max-threads=1 $url & done; wait"
        ),
    },
}
