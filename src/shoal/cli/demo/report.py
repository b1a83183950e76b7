"""What a demo crawl shows: the web servers' log and the stored records, compared with what there is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from shoal.cli.demo.site import BUSY_SECONDS, Sites
from shoal.cli.ui.console import visible


class Broken(Exception):
    """Something that should hold does not; the message is one sentence."""


def report(sites: Sites, results: Path) -> list[str]:
    """Lines for people. Broken when a promise did not hold."""
    records: list[dict[str, Any]] = [msgspec.json.decode(line) for line in results.read_bytes().splitlines()]
    pages = Counter(record["url"] for record in records if not record["error"])
    if set(pages) != sites.stored() or max(pages.values()) > 1:
        missing, most = len(sites.stored() - set(pages)), max(pages.values())
        raise Broken(f"{missing} pages of {len(sites.stored())} are missing, and one is stored {most} times.")
    lines = ["site      pages   requests   open at once   smallest gap     delay"]
    for site in sites.ports:
        own = sum(url.startswith(f"http://{sites.host(site)}/") for url in pages)
        most, gap, delay = sites.open_at_once(site), sites.smallest_gap(site), sites.delay(site)
        lines.append(
            f"{site:<9} {own:>5}   {len(sites.requests(site)):>8}   {most:>12}   {gap:>10.3f} s   {delay:>5.3f} s"
        )
        if most > 1 or gap < delay:
            raise Broken(f"The {site} was asked {gap:.3f} s after the request before, with {most} open at once.")
    if any(request.path.startswith("/drafts/") for request in sites.log):
        raise Broken("A page was asked for that robots.txt forbids.")
    waited = sites.waited_after_busy()
    if waited < BUSY_SECONDS:
        raise Broken(f"The shop asked for {BUSY_SECONDS} s of rest and got {waited:.3f} s.")
    lines += [
        "",
        "robots.txt   of the news forbids /drafts/: none of it was asked for;",
        f"             that of the museum wants {sites.delay('museum'):g} s between requests: it got them",
        f"busy         the shop answered 503 and asked for {BUSY_SECONDS} s of rest: it got {waited:.2f} s",
    ]
    for record in records:
        if record["redirects"]:
            hops = " -> ".join(f"{url} ({status})" for url, status in record["redirects"])
            lines.append(f"redirect     {hops} -> {record['url']}")
        elif record["error"]:
            lines.append(f"failed       {record['url']}: {record['error']}")
    lines += ["", f"All {len(pages)} pages are stored, each once, and no host was asked too soon."]
    return [visible(line) for line in lines]
