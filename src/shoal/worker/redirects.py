"""Redirects: the next hop of a chain becomes a visit of its own, or the reason why the chain ends.

Owns what a redirect keeps of its request: method, body, headers and cookies (RFC 9110 15.4). No I/O.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec

from shoal.frontier.visit_codec import MAX_EXTENSION_BYTES
from shoal.model.record import record_url
from shoal.model.visit import Visit, VisitMeta, pass_variant
from shoal.urls.canonical import Target, resolve, resolve_header
from shoal.worker.crawl_context import CrawlContext
from shoal.worker.outcome import MAX_HOPS

# Headers that describe a body.
_OF_A_BODY = frozenset({"content-encoding", "content-language", "content-type"})
# Room for the rest of a visit's extension: its method, and that it was requeued under an address.
_BESIDE_META = 64
_pack = msgspec.msgpack.Encoder().encode


class Hop(NamedTuple):
    """The target of a redirect: a visit to add, or the reason why there is none.

    failed  the visit fails with that reason; otherwise it is excluded
    """

    visit: Visit | None
    reason: str = ""
    failed: bool = False


def follow(
    visit: Visit, target: Target, location: str, status: int, context: CrawlContext, now: float, *,
    cookies_changed: bool = False,
) -> Hop:  # fmt: skip
    """The next hop of a chain: a visit of its own, with its host's delay and robots.txt and the crawl's scope.

    `status` is 0 for a redirect in the page itself. No query parameter is removed: the site would redirect again.
    `cookies_changed`: the response set cookies, so that the same URL may now lead elsewhere.
    """
    notes = visit.notes
    chain = notes.chain
    if len(chain) >= MAX_HOPS:
        return Hop(None, "too many redirects", failed=True)
    there = resolve_header(target.url, location) if status else resolve(target.url, location)
    if there is None:
        return Hop(None, "invalid redirect target", failed=True)
    # RFC 9110 15.4: 307 and 308 repeat the request, and so do 301 and 302 for any method but POST.
    keeps = visit.method == "HEAD" or status in (307, 308) or (status in (301, 302) and visit.method != "POST")
    method, body = (visit.method, visit.body) if keeps else ("GET", b"")
    if body and target.scheme == "https" and there.scheme != "https":
        return Hop(None, "redirect of a body from https to http", failed=True)
    same_origin = there.origin == target.origin
    dropped = frozenset() if body or method == visit.method else _OF_A_BODY
    # The headers of a request are for its origin: a redirect does not forward credentials to another one.
    headers = {name: value for name, value in visit.headers.items() if same_origin and name.lower() not in dropped}
    if not same_origin and body:
        headers = {name: value for name, value in visit.headers.items() if name.lower() in _OF_A_BODY}
    repeats = record_url(there.url, method, body)
    # With a spider, a pass continues where a redirect leads to.
    pass_number = notes.pass_number if context.spider else 0
    variant = pass_variant(pass_number)
    if cookies_changed or visit.method != "GET" or visit.body or notes.variant != variant:
        # The result of a form, or a page with other cookies, may have a URL that was visited before.
        variant = hashlib.blake2s(f"{len(chain)} {visit.identity}".encode(), digest_size=8).hexdigest()
    if not cookies_changed and (repeats == visit.record_url or any(repeats == url for url, _ in chain)):
        return Hop(None, "redirect loop", failed=True)
    # The target of a seed's redirect is in scope: users write example.org and mean www.example.org.
    seed = visit.found == "seed" or notes.seed
    if notes.sitemap is not None:
        reason = context.sitemap_reader.refuses(there, target.host)
    else:
        reason = "" if seed else context.scope.verdict(there, page_host=target.host) or context.trap(there, now)
    if reason:
        return Hop(None, reason)
    # Cookies of a jar are not copied: the next request reads the jar.
    cookies = notes.cookies if same_origin and context.cookie_jar == "off" else {}
    meta = VisitMeta(
        seed=seed, sitemap=notes.sitemap, guess=notes.guess, chain=(*chain, (visit.record_url, status)),
        callback=notes.callback, data=notes.data, cookies=cookies, variant=variant, pass_number=pass_number,
    ).pack()  # fmt: skip
    if len(_pack((method, headers, body, meta))) > MAX_EXTENSION_BYTES - _BESIDE_META:
        return Hop(None, "redirects too long", failed=True)
    hop = Visit(
        url=there.url, depth=visit.depth, priority=visit.priority, found="redirect", method=method, headers=headers,
        body=body, meta=meta,
    )  # fmt: skip
    return Hop(hop)
