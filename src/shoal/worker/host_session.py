"""The session of one leased host: its visits one after the other, with the host's delay between them.

    robots.txt -> delay -> fetch -> process -> deliver

Owns the order and the pauses. Once a lease can no longer be trusted, the session sends nothing. Another worker makes
the visits that were not delivered.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque

import msgspec

from shoal.errors import FetchError, ShoalError, StoreError, StoreNotReady
from shoal.frontier import mono
from shoal.leases.held_lease import HeldLease
from shoal.leases.host_pause import HostPause, pause_host, retry_seconds
from shoal.leases.lease_size import FEW_VISITS, TOPPED_UP_VISITS
from shoal.leases.robots_gate import REDIRECTED, Wait
from shoal.model.record import Capture
from shoal.model.response import Response
from shoal.model.visit import OutcomeCode, Visit
from shoal.politeness.backoff import Fault, failure_of
from shoal.politeness.robots_rules import Rules
from shoal.urls.canonical import Target, canonical
from shoal.worker import page_record
from shoal.worker.crawl_context import CrawlContext
from shoal.worker.leased_fetch import ProxyUnavailable
from shoal.worker.outcome import (
    Action,
    FetchResult,
    VisitResult,
    decide_fault,
    host_failures_without_robots,
)
from shoal.worker.page_fetch import PageFetch, StopSession
from shoal.worker.redirects import follow
from shoal.worker.session_resources import SessionResources

# If the next request to a host must wait for longer than this, the host is released.
_LONGEST_WAIT_SECONDS = 5.0
# How long to wait before the next request through an unavailable proxy.
_PROXY_SECONDS = 2.0


class _GiveUp(Exception):
    """The host was given up: the remaining visits fail with the same reason as those that waited in the store."""


class HostSession:
    """One leased host, from its first visit to its release."""

    def __init__(self, resources: SessionResources, lease: HeldLease) -> None:
        self._resources = resources
        self._frontier = resources.frontier
        self._processor = resources.processor
        self._lease = lease
        self._host = lease.lease.host
        self._todo = deque(lease.lease.visits)
        self._pages = PageFetch(resources, lease)
        # The host is paused: no further visit is made under this lease.
        self._paused = False

    async def run(self) -> None:
        """Make the visits of a lease. In every case each of them is delivered or released."""
        resources, lease, todo = self._resources, self._lease, self._todo
        delivery = resources.delivery
        topping_up: asyncio.Task[None] | None = None
        try:
            await self._pages.load_validators(todo)
            while todo or topping_up is not None:
                if topping_up is not None and (topping_up.done() or not todo):
                    await topping_up
                    topping_up = None
                    continue
                await delivery.room()
                if resources.stopping:
                    break
                result = await self._visit(todo[0])
                todo.popleft()
                if result.outcome.code is OutcomeCode.EXCLUDED:
                    await self._note_excluded(result)
                delivery.put(result)
                if self._paused:
                    break
                short = len(todo) < FEW_VISITS and topping_up is None
                if short and lease.has_room(resources.batch_seconds) and resources.may_stay(lease.lease):
                    topping_up = asyncio.create_task(self._top_up())
        except StopSession:
            pass
        except ProxyUnavailable as error:
            resources.report.trouble = str(error)
            await asyncio.sleep(_PROXY_SECONDS)
        except _GiveUp as error:
            for visit in todo:
                context = await resources.contexts.of(visit.crawl)
                result = await self._processor.give_up(lease, visit, context, str(error), None, time.time())
                delivery.put(await resources.revisits.schedule(result, context, self._host))
            todo.clear()
        finally:
            if topping_up is not None:
                topping_up.cancel()
                await asyncio.gather(topping_up, return_exceptions=True)
            # Visits of an unfinished top-up are released with the rest.
            delivery.leave(lease, list(todo), release=topping_up is not None)

    async def _note_excluded(self, result: VisitResult) -> None:
        """Keep the URL as a sample, to explain why it has no record."""
        with contextlib.suppress(ShoalError):
            context = await self._resources.contexts.of(result.visit.crawl)
            context.samples.note(result.outcome.reason, result.visit.url)

    async def _top_up(self) -> None:
        """Lease more visits of a fast host before the last ones are made, so that it need not wait for an output."""
        renewed = (await self._frontier.renew([self._lease.lease], visits=TOPPED_UP_VISITS))[0]
        if renewed is None:
            self._lease.lost = True
            return
        await self._pages.load_validators(renewed.visits)
        self._resources.eta.note(renewed, mono())
        self._lease.extend(renewed)
        self._todo.extend(renewed.visits)

    async def _visit(self, visit: Visit) -> VisitResult:
        resources, lease = self._resources, self._lease
        try:
            context = await resources.contexts.of(visit.crawl)
            if await resources.contexts.is_paused(context):
                # Visits that were leased before the pause wait for its end.
                raise StopSession
            target = canonical(visit.url)
        except StoreNotReady:
            raise
        except ShoalError as error:
            # The crawl was deleted, or the store's data about it is corrupt.
            return VisitResult(lease, visit, visit.failed(f"cannot be made: {error}"))
        if context.policy.revised and (reason := _excluded_by(context, visit, target)):
            # It was added under other rules.
            return await resources.revisits.schedule(
                VisitResult(lease, visit, visit.excluded(reason)), context, self._host
            )
        if uri := resources.delivery.health.unavailable_output(context):
            # The crawl was resumed, or this visit leased just before the pause: its result could not be stored now.
            await resources.delivery.health.pause(uri, context.name)
            raise StopSession
        if target.scheme == "ftp" and not context.ftp:
            return self._processor.failed(lease, visit, context, f"scheme {target.scheme}", None, time.time())
        if context.policy.by_address and not visit.notes.address:
            requeued = await self._requeue_by_address(visit, target, context)
            if requeued is not None:
                return requeued
        if REDIRECTED in visit.meta:
            return await self._fetch_redirected_robots(visit)
        rules: Rules | None = None
        if not context.policy.ignore_robots:
            rules = resources.robots.cached(lease, target, context.token)
            if rules is None:
                rules = await self._fetch_rules(visit, target, context)
        if context.sitemaps is None:
            return await self._visit_page(visit, target, context, rules)
        site = target.origin
        sitemaps = context.sitemaps.of_site(site, visit, target, rules)
        result = await self._visit_page(visit, target, context, rules)
        context.sitemaps.meet(site)
        return result._replace(visits=[*result.visits, *sitemaps], context=context) if sitemaps else result

    async def _visit_page(
        self, visit: Visit, target: Target, context: CrawlContext, rules: Rules | None
    ) -> VisitResult:
        """Make a visit of a host whose rules are known."""
        lease = self._lease
        if rules is not None and not rules.allows(target.path):
            excluded = VisitResult(lease, visit, visit.excluded("robots.txt"))
            return await self._resources.revisits.schedule(excluded, context, self._host)
        max_bytes = context.policy.max_bytes_per_host
        # Counted in the store: other workers may hold further slots of the host, or have held it before.
        if max_bytes and await self._frontier.hosts.add_bytes(context.crawl.key, self._host, 0) >= max_bytes:
            return VisitResult(lease, visit, visit.excluded("bytes per host"))
        fetched = self._pages.cached(visit)
        if fetched is None:
            if lease.gap_seconds > _LONGEST_WAIT_SECONDS or not await lease.keep_gap() or self._resources.stopping:
                raise StopSession
            fetched = await self._fetch(visit, target, context)
        result = await self._process(visit, target, context, fetched)
        result = await self._resources.revisits.schedule(result, context, self._host)
        if context.keeps_responses and fetched.response is not None and result.outcome.code is not OutcomeCode.RETRY:
            capture = Capture(
                crawl=context.name, page=fetched.response, method=visit.method,
                request_headers=fetched.request_headers, request_body=visit.body,
            )  # fmt: skip
            return result._replace(capture=capture)
        return result

    async def _requeue_by_address(self, visit: Visit, target: Target, context: CrawlContext) -> VisitResult | None:
        """Move a visit, once and before any request, to the queue of the IP address that many host names share."""
        try:
            address = await self._resources.fetcher.address(visit.url)
        except FetchError as error:
            fault = Fault(error.fault)
            fetched = FetchResult(fault, decide_fault(fault, error.reason), None, time.time())
            return await self._process(visit, target, context, fetched)
        if address == self._host:
            return None
        requeued = Visit(
            url=visit.url, depth=visit.depth, priority=visit.priority, found=visit.found, method=visit.method,
            headers=visit.headers, body=visit.body, meta={**visit.meta, "address": True}, host=address,
        )  # fmt: skip
        outcome = visit.excluded("requeued under its IP address")
        return VisitResult(self._lease, visit, outcome, None, [requeued], context)

    async def _fetch_rules(self, visit: Visit, target: Target, context: CrawlContext) -> Rules:
        """Without rules no page may be requested: the visits wait, and fail only when the host is given up."""
        rules = await self._resources.robots.rules(self._lease, target, context.token, visit.crawl)
        if not isinstance(rules, Wait):
            return rules
        if rules.cause is not None:
            if (await self._pause_for_robots(self._host, rules.cause, rules)).given_up:
                raise _GiveUp(rules.reason)
        elif not rules.lease_ended:
            await self._frontier.hosts.postpone(self._host, rules.seconds)
        raise StopSession

    async def _fetch_redirected_robots(self, visit: Visit) -> VisitResult:
        """Fetch another host's robots.txt from this host. A failure pauses both."""
        lease = self._lease
        try:
            host, rules = await self._resources.robots.fetch_redirected(lease, visit)
        except msgspec.ValidationError:
            return VisitResult(lease, visit, visit.failed("invalid visit in the store"))
        if isinstance(rules, Wait):
            if rules.lease_ended:
                raise StopSession
            if rules.cause is not None:
                await self._pause_for_robots(host, rules.cause, rules)
                if failure_of(rules.cause) is not None:
                    await self._pause_for_robots(self._host, rules.cause, rules)
                    self._paused = True
        return VisitResult(lease, visit, visit.excluded("robots.txt of another host"))

    async def _fetch(self, visit: Visit, target: Target, context: CrawlContext) -> FetchResult:
        fetched = await self._pages.fetch(visit, target, context)
        if context.policy.max_bytes_per_host and fetched.response is not None:
            # A page that was received is kept, even if the store cannot count its bytes now.
            with contextlib.suppress(StoreError):
                received = fetched.response.bytes_received
                await self._frontier.hosts.add_bytes(context.crawl.key, self._host, received)
        return fetched

    async def _process(self, visit: Visit, target: Target, context: CrawlContext, fetched: FetchResult) -> VisitResult:
        lease, response = self._lease, fetched.response
        action, reason = fetched.decision.action, fetched.decision.reason
        if response is not None:
            if action is Action.STORE:
                return await self._processor.process(lease, visit, target, context, response)
            if action is Action.CONFIRM:
                record = page_record.confirmed(response, visit, context, self._frontier.worker)
                return VisitResult(lease, visit, visit.stored(), record, [], context)
            if action is Action.REDIRECT:
                hop = follow(
                    visit, target, response.header("location"), response.status, context, response.started_at,
                    cookies_changed=fetched.cookies_changed,
                )  # fmt: skip
                if hop.visit is not None:
                    gone = None
                    if visit.is_revisit:
                        # The row in the output describes a page that is gone.
                        gone = page_record.failed(
                            visit, context, self._frontier.worker, "redirect", response, fetched.started_at
                        )
                    return VisitResult(lease, visit, visit.excluded("redirect"), gone, [hop.visit], context)
                if not hop.failed:
                    return VisitResult(lease, visit, visit.excluded(hop.reason))
                action, reason = Action.FAIL, hop.reason
        pause = HostPause(0.0, False)
        if failure_of(fetched.cause) is not None and fetched.decision.blames_host:
            most = fetched.decision.host_failures
            pause = await self._pause(self._host, fetched.cause, response, reason, most, visit)
            self._paused = pause.seconds > 0
        if pause.given_up:
            raise _GiveUp(reason)
        if action is Action.RETRY and visit.retries < context.policy.retries:
            self._resources.report.retries += 1
            # A lost connection is replaced at once.
            wait = retry_seconds(self._frontier, visit, pause) if fetched.decision.blames_host else 0.0
            return VisitResult(lease, visit, visit.retry(wait))
        return await self._processor.give_up(lease, visit, context, reason, response, fetched.started_at)

    async def _pause_for_robots(self, host: str, cause: int | Fault, wait: Wait) -> HostPause:
        """The rules of a host cannot be fetched: pause the host."""
        return await self._pause(host, cause, wait.response, wait.reason, host_failures_without_robots(cause))

    async def _pause(
        self, host: str, cause: int | Fault, response: Response | None, reason: str, host_failures: int | None,
        visit: Visit | None = None,
    ) -> HostPause:  # fmt: skip
        pause = await pause_host(
            self._frontier, host, cause, response, reason, host_failures=host_failures, visit=visit,
            after_success=visit is not None and self._lease.take_success(),
        )  # fmt: skip
        if pause.given_up:
            self._resources.eta.gone(host)
        else:
            self._resources.eta.backs_off(host, mono() + pause.seconds)
        return pause


def _excluded_by(context: CrawlContext, visit: Visit, target: Target) -> str:
    """Why the rules that the crawl has now exclude a URL that it has admitted; '' if they do not."""
    most = context.crawl.limits.max_depth
    if most is not None and visit.depth > most:
        return "depth"
    return context.scope.verdict(target, seed=visit.found == "seed" or visit.notes.seed, page_host=target.host)
