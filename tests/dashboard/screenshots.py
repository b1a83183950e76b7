"""Pictures of every screen, light and dark, wide and narrow: `make screenshots` writes them to a folder.

python -m tests.dashboard.screenshots FOLDER [IMAGES OF THE DOCUMENTATION]

The charts show what the crawls did in the MINUTES (a variable, default 12) before the pictures.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.dashboard.browser import chromium
from tests.dashboard.fleet import Fleet, fleet
from tests.site.responses import Response, page, robots

# Enough for a quarter of an hour.
PAGES = 1200
# Those that the documentation shows.
KEPT = ("overview-light-wide", "crawl-dark-wide", "host-light-narrow")
WIDTHS = {"wide": (1440, 900), "narrow": (390, 844)}
SCREENS = {
    "overview": "/", "crawls": "/crawls", "crawl": "/crawls/documentation", "failed": "/crawls/documentation/failed",
    "records": "/crawls/documentation/records", "crawl-hosts": "/crawls/news-archive/hosts",
    "new": "/new?like=documentation",
    "hosts": "/hosts", "host": "", "workers": "/workers", "find": "", "audit": "/audit",
}  # fmt: skip


def screens(host: str, url: str) -> dict[str, str]:
    """The paths of all screens by name."""
    return {**SCREENS, "host": f"/hosts/{host}?url=/private/1", "find": f"/find?url={url}"}


def populate(running: Fleet, minutes: float = 0.0) -> tuple[str, str]:
    """Crawls in several states. They run for some minutes: the charts show these. Returns a host and a URL of it."""
    site = running.crawls.site
    hosts = site.take(13)
    for number, host in enumerate(hosts):
        links = ["/gone", "/broken", "/private/1", *(f"/{name}" for name in range(PAGES))]
        site.at(host, "/robots.txt", robots("User-agent: *\nDisallow: /private/\nCrawl-delay: 0.5\n"))
        site.at(host, "/", page(*links, title=f"Manual {number}"))
        site.at(host, "/broken", Response(status=500))
        site.at(host, "/gone", Response(status=404))
        site.at(host, "*", page(title="Appendix", body="<p>Some text. " * 20))
        for name in range(60):
            body = "<p>Some text. " * (name % 40 + 5)
            missing = name % 29 == 17 and number < 6
            response = Response(status=404) if missing else page(title=f"Chapter {name} of manual {number}", body=body)
            site.at(host, f"/{name}", response)
    site.at(hosts[12], "*", Response(status=503))
    client = running.api.client
    seeds = [f"http://{host}/" for host in hosts]
    client.submit(seeds=seeds[11:12], name="blog", delay_seconds=0.1, max_pages=20)
    client.submit(seeds=[*seeds[:6], seeds[12]], name="documentation", delay_seconds=0.2, retries=3)
    client.submit(seeds=seeds[9:10], name="products", spider="products")
    client.submit(seeds=seeds[10:11], name="weekly-check", delay_seconds=1, app="shop")
    client.pause("shop:weekly-check")
    client.change_host(hosts[11], delay_seconds=3)
    pause(minutes * 0.3)
    client.submit(seeds=seeds[6:9], name="news-archive", delay_seconds=2, max_pages=5000, priority=2)
    pause(minutes * 0.3)
    client.change(crawl="documentation", delay_seconds=1)
    pause(minutes * 0.4)
    running.crawls.until(lambda: running.crawls.counts("documentation").stored > 60, "some pages are stored")
    return hosts[12], f"http://{hosts[0]}/7"


def pause(minutes: float) -> None:
    time.sleep(60 * minutes)


def main() -> int:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots")
    minutes = float(os.environ.get("MINUTES", "12"))
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, fleet(Path(folder), hosts=16, workers=2) as running:
        paths = screens(*populate(running, minutes))
        with chromium() as browser:
            for scheme in ("light", "dark"):
                for width, (across, down) in WIDTHS.items():
                    shape = {"width": across, "height": down}
                    with browser.page(running.api, color_scheme=scheme, viewport=shape, locale="en-GB") as opened:
                        for name, path in paths.items():
                            opened.page.goto(path)
                            opened.page.wait_for_timeout(4000 if name == "overview" else 1500 if name == "new" else 300)
                            opened.page.screenshot(path=str(target / f"{name}-{scheme}-{width}.png"), full_page=True)
                        opened.problems.clear()
    for name in KEPT if len(sys.argv) > 2 else ():
        shutil.copy(target / f"{name}.png", Path(sys.argv[2]) / f"dashboard-{name.rsplit('-', 2)[0]}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
