"""The request for one page: its headers, cookies and validators, and how its response is counted.

Owns what is sent for a visit. The session decides when; `leased_fetch.py` aborts a request whose lease has expired.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import msgspec

from shoal.errors import FetchError, StoreFull
from shoal.fetch import Request
from shoal.leases.held_lease import HeldLease
from shoal.model.visit import Visit
from shoal.politeness.backoff import Fault, failure_of, is_success
from shoal.politeness.delay import delay_seconds
from shoal.urls.canonical import Target
from shoal.worker.crawl_context import CrawlContext
from shoal.worker.leased_fetch import ProxyUnavailable, fetch_under_lease, request_headers
from shoal.worker.outcome import Action, Decision, FetchResult, decide_fault, decide_status
from shoal.worker.revisits import usable_validator
from shoal.worker.session_resources import SessionResources
from shoal.worker.sitemaps import body_bytes

# There is no room for the cookies of a page; `shoal failed --retry` visits it again.
_STORE_FULL = Decision(Action.FAIL, "store full", blames_host=False)


class StopSession(Exception):
    """The remaining visits of a host go back to the frontier."""


class PageFetch:
    """The requests for pages under one lease."""

    def __init__(self, resources: SessionResources, lease: HeldLease) -> None:
        self._resources = resources
        self._frontier = resources.frontier
        self._lease = lease
        # ETag or date of pages that are visited again, by the number of the visit.
        self._validators: dict[int, str] = {}

    async def load_validators(self, visits: Iterable[Visit]) -> None:
        """Read the ETags and dates of pages that are visited again."""
        by_crawl: dict[str, list[Visit]] = {}
        for visit in visits:
            if visit.is_revisit:
                by_crawl.setdefault(visit.crawl, []).append(visit)
        for crawl, revisits in by_crawl.items():
            values = await self._frontier.validators.recall(crawl, [visit.url for visit in revisits])
            pairs = zip(revisits, values, strict=True)
            usable = ((visit.number, usable_validator(value, visit.history)) for visit, value in pairs if value)
            self._validators.update({number: value for number, value in usable if value})

    def cached(self, visit: Visit) -> FetchResult | None:
        """The response in the cache of `fetch.cache`. The host does not notice, so its delay does not apply."""
        response = self._resources.fetcher.cached(visit.url) if visit.method == "GET" and not visit.body else None
        if response is None:
            return None
        decision = decide_status(response.status, conditional=False, location=bool(response.header("location")))
        return FetchResult(response.status, decision, response, response.started_at)

    async def fetch(self, visit: Visit, target: Target, context: CrawlContext) -> FetchResult:
        """Request a page. StopSession if the lease expired during the request."""
        resources, lease, policy = self._resources, self._lease, context.policy
        try:
            given = visit.notes.cookies if visit.meta else {}
            kept = await resources.cookies.header(context, target, given) if context.cookie_jar != "off" else ""
        except StoreFull:
            return FetchResult(Fault.ABORTED, _STORE_FULL, None, time.time())
        headers = request_headers(context.headers(target), visit, kept)
        validator = self._validators.get(visit.number, "") if self._validators else ""
        if validator:
            # An ETag is quoted, a date is not.
            name = "If-None-Match" if validator.endswith('"') else "If-Modified-Since"
            headers = (*headers, (name, validator))
        request = Request(
            url=context.address(visit.url, target), method=visit.method, headers=headers, body=visit.body,
            timeout_seconds=policy.timeout_seconds, body_bytes=body_bytes(visit, policy.body_bytes),
            ftp=context.ftp,
        )  # fmt: skip
        started_at = time.time()
        resources.fetching += 1
        try:
            response = await fetch_under_lease(lease, resources.fetcher, request)
            if request.url != visit.url:
                response = msgspec.structs.replace(response, url=visit.url)
        except FetchError as error:
            fault = Fault(error.fault)
            lease.finish(success=None if failure_of(fault) is None else False, response_seconds=None)
            resources.count_request(0)
            if fault is Fault.TIMED_OUT and lease.seconds_left <= 0:
                # The lease expired during the request: the next lease holder of the host tries again.
                raise StopSession from None
            return FetchResult(fault, decide_fault(fault, error.reason), None, started_at, headers)
        except asyncio.CancelledError:
            # Aborted at shutdown: the host was busy with this request until now.
            lease.finish(success=None, response_seconds=None)
            raise
        except ProxyUnavailable:
            raise
        except Exception as error:
            # Out of memory, or a header that cannot be sent: it fails this visit, not every worker.
            lease.finish(success=None, response_seconds=None)
            resources.count_request(0)
            decision = Decision(Action.FAIL, f"fetching: {type(error).__name__}")
            return FetchResult(Fault.ABORTED, decision, None, started_at, headers)
        finally:
            resources.fetching -= 1
        lease.finish(success=is_success(response.status), response_seconds=response.timings.total)
        resources.count_request(response.bytes_received)
        if policy.delay_factor:
            lease.adaptive_seconds = delay_seconds(
                configured=0.0, response_seconds=response.timings.total, factor=policy.delay_factor
            )
        cookies_changed = False
        if context.cookie_jar != "off" and (set_cookies := response.all_headers("set-cookie")):
            try:
                cookies_changed = await resources.cookies.receive(context, target, set_cookies)
            except StoreFull:
                # The next pages would be those of another visitor.
                return FetchResult(response.status, _STORE_FULL, response, started_at, headers)
        has_location = bool(response.header("location"))
        decision = decide_status(response.status, conditional=bool(validator), location=has_location)
        return FetchResult(response.status, decision, response, started_at, headers, cookies_changed)
