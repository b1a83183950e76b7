"""The crawlers that are compared, each as the commands that crawl some sites to the end."""

from __future__ import annotations

import shutil
import sys
from abc import ABC, abstractmethod
from pathlib import Path

from bench.crawl import by_scrapy
from bench.crawl.program import ROOT, Run, run, shoal
from bench.server import Server
from tests.system.documents import Web

# Follow links, like the other crawlers, but not the resources that a browser needs to show a page.
_WGET2 = (
    "wget2", "--no-config", "--quiet", "--progress=none", "--recursive", "--level=0", "--max-threads=16", "--tries=1",
    "--timeout=60", "--robots=off", "--cookies=off",
    "--ignore-tags=img,link,script,source,video,audio,embed,object,input,body",
)  # fmt: skip


class Contestant(ABC):
    name: str
    fast = False  # Fast crawlers crawl each tree from several addresses: one copy has too few pages.

    @abstractmethod
    def crawl(self, web: Web, seeds: list[str], folder: Path, processes: int) -> Run:
        """Crawl the hosts of the seeds to the end."""


class Shoal(Contestant):
    """With robots.txt, which the others do not read; the store is set up as the embedded one is."""

    name = "Shoal"
    fast = True

    def __init__(self, tree: Path = ROOT) -> None:
        """`tree` is the checkout that crawls."""
        self._tree = tree

    def crawl(self, web: Web, seeds: list[str], folder: Path, processes: int) -> Run:
        with Server(durable=True) as store:
            command = shoal(seeds, folder, "--store", store.url, workers=processes)
            return run(web, [command], folder, store_cpu=store.cpu_seconds, tree=self._tree)


class ScrapyRedis(Contestant):
    """Its server writes nothing to disk, which is an advantage over Shoal's."""

    name = "scrapy-redis"

    def crawl(self, web: Web, seeds: list[str], folder: Path, processes: int) -> Run:
        with Server(durable=False) as store:
            store.redis.lpush(by_scrapy.KEY, *seeds)
            commands = [_scrapy(f"{number}.jsonl", store.url, *seeds) for number in range(processes)]
            return run(web, commands, folder, store_cpu=store.cpu_seconds)


class ScrapyOnShoal(Contestant):
    """scrapy-redis' spider with Shoal's settings; the store is set up as the embedded one is."""

    name = "Scrapy on Shoal"

    def crawl(self, web: Web, seeds: list[str], folder: Path, processes: int) -> Run:
        with Server(durable=True) as store:
            store.redis.lpush(by_scrapy.KEY, *seeds)
            commands = [_scrapy(f"{number}.jsonl", f"shoal+{store.url}", *seeds) for number in range(processes)]
            return run(web, commands, folder, store_cpu=store.cpu_seconds)


class Scrapy(Contestant):
    name = "Scrapy"

    def crawl(self, web: Web, seeds: list[str], folder: Path, processes: int) -> Run:
        return run(web, [_scrapy(f"{n}.jsonl", *part) for n, part in enumerate(_parts(seeds, processes))], folder)


class Crawlee(Contestant):
    name = "Crawlee"

    def crawl(self, web: Web, seeds: list[str], folder: Path, processes: int) -> Run:
        module = [sys.executable, "-m", "bench.crawl.by_crawlee"]
        return run(web, [[*module, f"{n}.jsonl", *part] for n, part in enumerate(_parts(seeds, processes))], folder)


class Wget2(Contestant):
    """Written in C. It extracts links and stores the pages as files, but extracts no title and no text."""

    name = "wget2"
    fast = True

    def crawl(self, web: Web, seeds: list[str], folder: Path, processes: int) -> Run:
        if shutil.which("wget2") is None:
            raise RuntimeError("wget2 is not installed; run: apt-get install wget2")
        commands = [[*_WGET2, f"--directory-prefix=files{n}", *part] for n, part in enumerate(_parts(seeds, processes))]
        return run(web, commands, folder)


def _scrapy(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "bench.crawl.by_scrapy", *arguments]


def _parts(seeds: list[str], processes: int) -> list[list[str]]:
    """Seeds for processes that share nothing: each process gets its own hosts, with the same trees."""
    return [seeds[number::processes] for number in range(processes)]
