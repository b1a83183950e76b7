"""The report of a demo crawl: the web servers' log and the stored records, compared with the sites."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from shoal.cli.demo.site import BUSY_SECONDS, Sites
from shoal.cli.ui.console import visible


class PromiseBroken(Exception):
    """A guarantee of Shoal was broken. The message is one sentence."""


def report_lines(sites: Sites, results: Path) -> list[str]:
    """Return the lines of the report. Raises PromiseBroken."""
    records: list[dict[str, Any]] = [msgspec.json.decode(line) for line in results.read_bytes().splitlines()]
    pages = Counter(record["url"] for record in records if not record["error"])
    most = max(pages.values(), default=0)
    if set(pages) != sites.stored() or most > 1:
        missing = len(sites.stored() - set(pages))
        raise PromiseBroken(f"{missing} pages of {len(sites.stored())} are missing, and one is stored {most} times.")
    lines = ["site      pages   requests   open at once   smallest gap     delay"]
    for site in sites.ports:
        count = sum(url.startswith(f"http://{sites.host(site)}/") for url in pages)
        most, gap, delay = sites.open_at_once(site), sites.smallest_gap(site), sites.delay(site)
        lines.append(
            f"{site:<9} {count:>5}   {len(sites.requests(site)):>8}   {most:>12}   {gap:>10.3f} s   {delay:>5.3f} s"
        )
        if most > 1 or gap < delay:
            raise PromiseBroken(
                f"The {site} got a request {gap:.3f} s after the previous one, with {most} open at once."
            )
    if any(request.path.startswith("/drafts/") for request in sites.log):
        raise PromiseBroken("A page was requested that robots.txt disallows.")
    waited = sites.waited_after_busy()
    if waited < BUSY_SECONDS:
        raise PromiseBroken(f"The shop sent Retry-After: {BUSY_SECONDS} and got {waited:.3f} s.")
    lines += [
        "",
        "robots.txt   the news disallows /drafts/: no request was sent there",
        f"             the museum sets a crawl delay of {sites.delay('museum'):g} s: it was kept",
        f"busy         the shop sent 503 with Retry-After: {BUSY_SECONDS}: the next request came {waited:.2f} s later",
    ]
    for record in records:
        if record["redirects"]:
            hops = " -> ".join(f"{url} ({status})" for url, status in record["redirects"])
            lines.append(f"redirect     {hops} -> {record['url']}")
        elif record["error"]:
            lines.append(f"failed       {record['url']}: {record['error']}")
    lines += ["", f"All {len(pages)} pages are stored exactly once, and no host got a request too soon."]
    return [visible(line) for line in lines]
