"""`broad`: 200 hosts with a delay of one second each, by Scrapy alone and by the same project on Shoal, taking turns.

The delays determine the time, so the result shows whether Shoal's leases delay requests to hosts that are ready.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.crawl.program import ROOT
from bench.figures import Figure
from bench.size import Size
from tests.site.responses import page
from tests.site.site import Site, serving

_HOSTS = 200
_PAGES = 5
_DELAY_SECONDS = 1.0
_CONCURRENT = (16, 100)
_SPIDER = """
import scrapy


class Broad(scrapy.Spider):
    name = "broad"

    async def start(self):
        for host in self.hosts.split(","):
            yield scrapy.Request(f"http://{host}/0")

    def parse(self, response):
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)
"""
_RANDOM = "DOWNLOAD_DELAY_JITTER=0"


async def broad(size: Size) -> list[Figure]:
    hosts = size.of(_HOSTS)
    figures = []
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        (Path(name) / "broad.py").write_text(_SPIDER)
        with serving(Path(name) / "site", hosts=hosts) as site:
            for host in site.hosts:
                site.at(host, "/0", page(*(f"/{number}" for number in range(1, _PAGES))))
                site.at(host, "*", page())
            for concurrent in _CONCURRENT:
                alone, ours = [], []
                for turn in range(1 if size.quick else 3):
                    alone.append(_run(site, Path(name), concurrent, []))
                    own = Path(name) / f"store {concurrent} {turn}"
                    shoal = ["-s", "SCHEDULER=shoal.scrapy.Scheduler", "-s", f"SHOAL_STORE_FOLDER={own}"]
                    ours.append(_run(site, Path(name), concurrent, shoal))
                figures.append(
                    Figure(
                        name=f"Broad crawl of {hosts} hosts, CONCURRENT_REQUESTS {concurrent}: time", unit="s",
                        values=ours, at_most=sorted(alone)[len(alone) // 2],
                        note=f"from the first request to the last; Scrapy alone {sorted(alone)[len(alone) // 2]:.1f}",
                    )
                )  # fmt: skip
    return figures


def _run(site: Site, folder: Path, concurrent: int, more: list[str]) -> float:
    """Seconds from the first request of a crawl to its last."""
    before = len(site.requests())
    argv = [sys.executable, "-m", "scrapy", "runspider", "broad.py", "-a", f"hosts={','.join(site.hosts)}"]
    argv += ["-s", f"DOWNLOAD_DELAY={_DELAY_SECONDS}", "-s", f"CONCURRENT_REQUESTS={concurrent}", "-s", _RANDOM]
    argv += ["-s", "CONCURRENT_REQUESTS_PER_DOMAIN=1", "-s", "TELNETCONSOLE_ENABLED=0", "-s", "LOG_LEVEL=WARNING"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    subprocess.run([*argv, *more], cwd=folder, env=environment, check=True, timeout=600)
    requests = site.requests()[before:]
    if len({request.url for request in requests}) != len(site.hosts) * _PAGES:
        raise RuntimeError(f"{len(requests)} requests in place of {len(site.hosts) * _PAGES}")
    return max(request.ended for request in requests) - min(request.began for request in requests)
