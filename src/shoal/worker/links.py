"""Links: the URLs that a page, sitemap or spider names become visits, if they are in scope and not a trap. No I/O.

URLs that this worker has added recently are skipped: adding them again would change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal.errors import InvalidUrl
from shoal.leases.recent_urls import RecentUrls
from shoal.model.visit import Visit
from shoal.parse.html import Parsed
from shoal.spider import Follow
from shoal.urls.canonical import Target, canonical, parts_of, resolve
from shoal.urls.traps import LINKS
from shoal.worker.crawl_context import CrawlContext
from shoal.worker.spider_runner import visit_of

_NO_FTP = "scheme ftp"


def visits_of_follows(
    follows: Iterable[Follow], visit: Visit, target: Target, context: CrawlContext, now: float
) -> tuple[list[Visit], dict[str, list[Visit]]]:
    """The pages a spider follows that are in scope: visits of its own, and those of other spiders by their names."""
    own: list[Visit] = []
    for_others: dict[str, list[Visit]] = {}
    # Also beyond the depth limit: the frontier sets such URLs aside until the limit is raised.
    depth = visit.depth + 1
    for index, follow_up in enumerate(follows):
        try:
            there = canonical(context.cleaned(follow_up.url))
        except InvalidUrl:
            # Relative to the page, or not a web address (a selector may match mailto: links).
            absolute = resolve(target.url, context.cleaned(follow_up.url))
            if absolute is None:
                continue
            there = absolute
        other = follow_up.spider and follow_up.spider != context.spider
        priority = visit.priority if follow_up.priority is None else follow_up.priority
        next_visit = visit_of(
            follow_up, there.url, depth=depth, priority=priority, parent=visit.identity, index=index,
            pass_number=visit.notes.pass_number,
        )  # fmt: skip
        reason = context.scope.verdict(there, page_host=target.host)
        if not reason and next_visit.is_plain and not other and not visit.abandoned and there.url in context.recent:
            continue
        if not reason:
            reason = _NO_FTP if there.scheme == "ftp" and not context.ftp else context.trap(there, now)
        if reason:
            context.samples.note(reason, there.url)
            continue
        (for_others.setdefault(follow_up.spider, []) if other else own).append(next_visit)
    return own, for_others


def visits_of_links(
    parsed: Parsed, visit: Visit, target: Target, context: CrawlContext, obey: bool, now: float
) -> list[Visit]:
    if parsed.links_dropped:
        context.count_trapped(LINKS, parsed.links_dropped)
    links = (link for link in parsed.links if not (link.rel and obey and link.nofollow))
    if "feed" not in context.follow:
        return visits_of_urls((link.url for link in links), visit, target, context, now)
    by_feed: dict[bool, list[str]] = {False: [], True: []}
    for link in links:
        by_feed[link.kind == "feed"].append(link.url)
    # Most pages of a site name the same feed.
    feeds = (url for url in by_feed[True] if url not in context.recent)
    return [
        *visits_of_urls(by_feed[False], visit, target, context, now),
        *context.sitemap_reader.files(feeds, visit, target, nesting=0),
    ]


def visits_of_urls(
    urls: Iterable[str], visit: Visit, target: Target, context: CrawlContext, now: float, found: str = "link"
) -> list[Visit]:
    """The visits of URLs that are in scope and were not added recently."""
    # The links of an abandoned page are added again: the journal must have them.
    recent: RecentUrls | tuple[()] = () if visit.abandoned else context.recent
    verdict, cleaned, trap = context.scope.verdict, context.cleaned, context.trap
    depth, priority, host, outside = visit.depth + 1, visit.priority, target.host, context.outside
    visits = []
    for link in urls:
        # Most links are recent ones: skip them first.
        if link in recent or (host, link) in outside:
            continue
        url = cleaned(link)
        if url is not link and url in recent:
            continue
        try:
            there = parts_of(url)
        except InvalidUrl:
            continue
        reason = verdict(there, page_host=host)
        if reason:
            outside.add((host, link))
        else:
            reason = _NO_FTP if there.scheme == "ftp" and not context.ftp else trap(there, now)
        if reason:
            context.samples.note(reason, url)
            continue
        visits.append(Visit(url=url, depth=depth, priority=priority, found=found))
    return visits
