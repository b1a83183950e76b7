"""The holder of a lease: its visits one after the other, the host's gap between them, what comes of each.

    robots -> gap -> fetch -> read -> delivery

Owns the order and the pauses. A lease that cannot be trusted any more is dropped: nothing is sent after that, and what
was not delivered somebody else makes again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from shoal.errors import FetchError, ShoalError, StoreError, StoreHeld, StoreUnavailable
from shoal.fetch import Fetcher, Request
from shoal.frontier import Frontier, mono
from shoal.model.lease import Lease
from shoal.model.record import Capture
from shoal.model.response import Response
from shoal.model.visit import Visit
from shoal.model.worker_report import WorkerReport
from shoal.politeness.backoff import Fault, failure_of, is_success, pause_seconds
from shoal.politeness.delay import asked_pause_seconds, delay_seconds, http_date
from shoal.politeness.robots_parser import Rules
from shoal.urls.canonical import Target, canonical
from shoal.worker import page_processor
from shoal.worker.crawl_context import CrawlContext, CrawlContexts, origin
from shoal.worker.delivery import Delivery
from shoal.worker.eta import Eta
from shoal.worker.hold import Hold, ProxyUnavailable
from shoal.worker.outcome import Do, Verdict, VisitResult, of_fault, of_status
from shoal.worker.page_processor import PageProcessor
from shoal.worker.robots_gate import RobotsGate, Wait
from shoal.worker.sitemaps import body_bytes

# A host that must be left alone for longer than this is given back instead of being waited for.
_PATIENCE_SECONDS = 5.0
# A host from which no answer ever came is given up after this many failures.
_NEVER_THERE = 3
# A proxy that is away is tried again after this time.
_PROXY_SECONDS = 2.0
# With fewer visits left than this, a lease is topped up to so many.
_TOP_UP = 8
_VISITS = 128


class _GiveBack(Exception):
    """The visits that are left go back to the frontier."""


class _GiveUp(Exception):
    """The host was set aside: the visits that are left fail with the same reason as those that waited."""


class Answer:
    """What came of one request: a page or a fault, and what that means for the visit."""

    __slots__ = ("page", "started_at", "verdict", "what")

    def __init__(self, what: int | Fault, verdict: Verdict, page: Response | None, started_at: float) -> None:
        self.what = what
        self.verdict = verdict
        self.page = page
        self.started_at = started_at


class Holders:
    """What all holders of a worker share."""

    def __init__(
        self, frontier: Frontier, fetcher: Fetcher, conducts: CrawlContexts, delivery: Delivery, reader: PageProcessor,
        report: WorkerReport, batch_seconds: float, may_stay: Callable[[Lease], bool],
    ) -> None:  # fmt: skip
        """`may_stay` says whether a lease may be topped up, again and again, or its host should be free for others."""
        self.frontier = frontier
        self.fetcher = fetcher
        self.conducts = conducts
        self.delivery = delivery
        self.reader = reader
        self.report = report
        self.robots = RobotsGate(frontier, fetcher, self.count_request)
        self.batch_seconds = batch_seconds
        self.may_stay = may_stay
        self.outlook = Eta()
        self.stopping = False
        self.fetching = 0

    def count_request(self, received: int) -> None:
        self.report.requests += 1
        self.report.bytes += received

    async def hold(self, hold: Hold) -> None:
        """Work off a lease. Whatever happens, its visits end up delivered or given back."""
        todo = deque(hold.lease.visits)
        topping: asyncio.Task[None] | None = None
        try:
            validators = await self._validators(todo)
            while todo or topping is not None:
                if topping is not None and (topping.done() or not todo):
                    await topping
                    topping = None
                    continue
                await self.delivery.room()
                if self.stopping:
                    break
                finished = await self._visit(hold, todo[0], validators.get(todo[0].number, ""))
                todo.popleft()
                self.delivery.put(finished)
                if hold.pausing:
                    break
                short = len(todo) < _TOP_UP and topping is None
                if short and hold.has_room(self.batch_seconds) and self.may_stay(hold.lease):
                    topping = asyncio.create_task(self._top_up(hold, todo, validators))
        except _GiveBack:
            pass
        except ProxyUnavailable as away:
            self.report.trouble = str(away)
            await asyncio.sleep(_PROXY_SECONDS)
        except _GiveUp as reason:
            for visit in todo:
                conduct = await self.conducts.of(visit.crawl)
                self.delivery.put(await self.reader.give_up(hold, visit, conduct, str(reason), None, time.time()))
            todo.clear()
        finally:
            if topping is not None:
                topping.cancel()
                await asyncio.gather(topping, return_exceptions=True)
            # What a top-up may have brought that did not get here is given back with the rest.
            self.delivery.leave(hold, list(todo), release=topping is not None)

    async def _top_up(self, hold: Hold, todo: deque[Visit], validators: dict[int, str]) -> None:
        """More visits of a host that answers fast, before the last ones are made: it need not wait for an output."""
        lease = (await self.frontier.renew([hold.lease], visits=_VISITS))[0]
        if lease is None:
            hold.lost = True
            return
        validators.update(await self._validators(lease.visits))
        self.outlook.note(lease, mono())
        hold.extend(lease)
        todo.extend(lease.visits)

    async def _visit(self, hold: Hold, visit: Visit, validator: str) -> VisitResult:
        try:
            conduct = await self.conducts.of(visit.crawl)
            target = canonical(visit.url)
        except (StoreUnavailable, StoreHeld):
            raise
        except ShoalError as error:
            # The crawl is gone, or what the store has of it is not ours.
            return VisitResult(hold, visit, visit.failed(f"cannot be made: {error}"))
        if away := self.delivery.absent.output_of(conduct):
            # It was resumed, or taken just before it was paused: nothing can come of it now.
            await self.delivery.absent.pause(away, conduct.name)
            raise _GiveBack
        if target.scheme == "ftp" and not conduct.ftp:
            return self.reader.failed(hold, visit, conduct, f"scheme {target.scheme}", None, time.time())
        if conduct.policy.by_address and "address" not in visit.meta:
            moved = await self._move(hold, visit, target, conduct)
            if moved is not None:
                return moved
        if "robots" in visit.meta:
            return await self._fetch_elsewhere(hold, visit, conduct)
        rules: Rules | None = None
        if not conduct.policy.ignore_robots:
            known = await self.robots.rules(hold, visit, target, conduct)
            if isinstance(known, Wait):
                await self._wait(hold, known)
            else:
                rules = known
        if conduct.sitemaps is None:
            return await self._make(hold, visit, target, conduct, rules, validator)
        site = origin(target)
        more = conduct.sitemaps.of_site(site, visit, target, rules)
        finished = await self._make(hold, visit, target, conduct, rules, validator)
        conduct.sitemaps.meet(site)
        return finished._replace(visits=[*finished.visits, *more], conduct=conduct) if more else finished

    async def _make(
        self, hold: Hold, visit: Visit, target: Target, conduct: CrawlContext, rules: Rules | None, validator: str
    ) -> VisitResult:
        """Make a visit whose host's rules are known."""
        if rules is not None and not rules.allows(_path(target)):
            return VisitResult(hold, visit, visit.excluded("robots.txt"))
        max_bytes = conduct.policy.max_bytes_per_host
        # Counted in the store: other workers may hold further slots of the host, or have held it before.
        if max_bytes and await self.frontier.hosts.add_bytes(conduct.crawl.key, hold.lease.host, 0) >= max_bytes:
            return VisitResult(hold, visit, visit.excluded("bytes per host"))
        if hold.gap_seconds > _PATIENCE_SECONDS or not await hold.keep_gap():
            raise _GiveBack
        answer, request = await self._fetch(hold, visit, target, conduct, validator)
        finished = await self._conclude(hold, visit, target, conduct, answer)
        if conduct.keeps_answers and answer.page is not None and finished.outcome.code != "r":
            return finished._replace(
                capture=Capture(
                    crawl=conduct.name, page=answer.page, method=visit.method, request_headers=request.headers,
                    request_body=visit.body,
                )
            )  # fmt: skip
        return finished

    async def _move(self, hold: Hold, visit: Visit, target: Target, conduct: CrawlContext) -> VisitResult | None:
        """Where many names share an address, a visit waits in the queue of that address. It moves once, unasked."""
        try:
            address = await self.fetcher.address(visit.url)
        except FetchError as error:
            fault = Fault(error.fault)
            answer = Answer(fault, of_fault(fault, error.reason), None, time.time())
            return await self._conclude(hold, visit, target, conduct, answer)
        if address == hold.lease.host:
            return None
        there = Visit(
            url=visit.url, depth=visit.depth, priority=visit.priority, found=visit.found, method=visit.method,
            headers=visit.headers, body=visit.body, meta={**visit.meta, "address": True}, host=address,
        )  # fmt: skip
        return VisitResult(hold, visit, visit.excluded("asked by address"), None, [there], conduct)

    async def _fetch_elsewhere(self, hold: Hold, visit: Visit, conduct: CrawlContext) -> VisitResult:
        """The robots.txt of one host, from another: what goes wrong here closes both."""
        try:
            host, rules = await self.robots.fetch_elsewhere(hold, visit, conduct)
        except msgspec.ValidationError:
            return VisitResult(hold, visit, visit.failed("not one of Shoal's"))
        if isinstance(rules, Wait):
            if rules.over:
                raise _GiveBack
            if rules.answer is not None:
                await self._close(host, rules)
                if failure_of(rules.answer) is not None:
                    await self._close(hold.lease.host, rules)
                    hold.pausing = True
        return VisitResult(hold, visit, visit.excluded("robots.txt of another host"))

    async def _fetch(
        self, hold: Hold, visit: Visit, target: Target, conduct: CrawlContext, validator: str
    ) -> tuple[Answer, Request]:
        headers = conduct.headers(target)
        if visit.headers:
            headers = (*headers, *visit.headers.items())
        if validator:
            # An ETag is quoted, a date is not.
            name = "If-None-Match" if validator.endswith('"') else "If-Modified-Since"
            headers = (*headers, (name, validator))
        policy = conduct.policy
        request = Request(
            url=visit.url, method=visit.method, headers=headers, body=visit.body,
            timeout_seconds=policy.timeout_seconds, body_bytes=body_bytes(visit, policy.body_bytes),
            ftp=conduct.ftp,
        )  # fmt: skip
        started = time.time()
        self.fetching += 1
        try:
            page = await hold.fetch(self.fetcher, request)
        except FetchError as error:
            fault = Fault(error.fault)
            hold.finish(success=None if failure_of(fault) is None else False, response_seconds=None)
            self.count_request(0)
            if fault is Fault.TIMED_OUT and hold.seconds_left <= 0:
                # The lease ran out on it: whoever has the host next tries again.
                raise _GiveBack from None
            return Answer(fault, of_fault(fault, error.reason), None, started), request
        except asyncio.CancelledError:
            # Aborted, at a stop: the host has been asked until now.
            hold.finish(success=None, response_seconds=None)
            raise
        except ProxyUnavailable:
            raise
        except Exception as error:
            # No memory for it, or a header that cannot be sent: it does that to itself alone, not to every worker.
            hold.finish(success=None, response_seconds=None)
            self.count_request(0)
            verdict = Verdict(Do.FAIL, f"fetching: {type(error).__name__}")
            return Answer(Fault.ABORTED, verdict, None, started), request
        finally:
            self.fetching -= 1
        hold.finish(success=is_success(page.status), response_seconds=page.timings.total)
        self.count_request(page.bytes_received)
        if policy.max_bytes_per_host:
            # A page that was received is kept, even if the store cannot count its bytes now.
            with contextlib.suppress(StoreError):
                await self.frontier.hosts.add_bytes(conduct.crawl.key, hold.lease.host, page.bytes_received)
        if policy.delay_factor:
            hold.adaptive_seconds = delay_seconds(
                configured=0.0, response_seconds=page.timings.total, factor=policy.delay_factor
            )
        verdict = of_status(page.status, conditional=bool(validator), location=bool(page.header("location")))
        return Answer(page.status, verdict, page, started), request

    async def _conclude(
        self, hold: Hold, visit: Visit, target: Target, conduct: CrawlContext, answer: Answer
    ) -> VisitResult:
        do, reason = answer.verdict.do, answer.verdict.reason
        worker, page = self.frontier.worker, answer.page
        if page is not None:
            if do is Do.STORE:
                return await self.reader.read(hold, visit, target, conduct, page)
            if do is Do.CONFIRM:
                record = page_processor.confirmed(page, visit, conduct, worker)
                return VisitResult(hold, visit, visit.stored(), record, [], conduct)
            if do is Do.REDIRECT:
                hop = page_processor.follow(
                    visit, target, page.header("location"), page.status, conduct, page.started_at
                )
                if hop.visit is not None:
                    gone = None
                    if visit.found == "revisit" and not visit.meta.get("seed"):
                        # It has a row, which says what was here; it is not any more.
                        gone = page_processor.failed(visit, conduct, worker, "redirect", page, answer.started_at)
                    return VisitResult(hold, visit, visit.excluded("redirect"), gone, [hop.visit], conduct)
                if not hop.failed:
                    return VisitResult(hold, visit, visit.excluded(hop.reason))
                do, reason = Do.FAIL, hop.reason
        pause, aside = 0.0, False
        if failure_of(answer.what) is not None and answer.verdict.blames_host:
            failures = answer.verdict.host_failures
            pause, aside = await self._pause(hold.lease.host, answer.what, page, failures, reason)
            hold.pausing = pause > 0
        if aside:
            raise _GiveUp(reason)
        if do is Do.RETRY and visit.retries < conduct.policy.retries:
            self.report.retries += 1
            return VisitResult(hold, visit, visit.retry(pause))
        return await self.reader.give_up(hold, visit, conduct, reason, page, answer.started_at)

    async def _wait(self, hold: Hold, wait: Wait) -> None:
        """robots.txt does not let us in now: the visits wait, and fail only when the host is given up."""
        if wait.answer is not None:
            if await self._close(hold.lease.host, wait):
                raise _GiveUp(wait.reason)
        elif not wait.over:
            await self.frontier.hosts.postpone(hold.lease.host, wait.seconds)
        raise _GiveBack

    async def _close(self, host: str, wait: Wait) -> bool:
        """Nobody knows what its robots.txt says: leave the host alone for a while. True when it was set aside."""
        answer = wait.answer
        assert answer is not None  # noqa: S101 - the callers looked
        failures = of_fault(answer, "").host_failures if isinstance(answer, Fault) else None
        if answer is Fault.FORBIDDEN_ADDRESS:
            # Nothing will ever come of it: what waits here fails now.
            failures = 1
        _, aside = await self._pause(host, answer, wait.page, failures, wait.reason)
        return aside

    async def _pause(
        self, host: str, what: int | Fault, page: Response | None, host_failures: int | None, reason: str
    ) -> tuple[float, bool]:
        """Leave a host alone for a while, the whole fleet. Also says whether its visits were set aside."""
        asked = None
        if page is not None:
            # A date is meant by the server's own clock, which its answer tells.
            now = http_date(page.header("date")) or time.time()
            asked = asked_pause_seconds(page.status, page.header("retry-after") or None, now=now)
        pause, failure = 0.0, failure_of(what)
        if failure is not None:
            known = await self.frontier.hosts.get(host)
            pause = pause_seconds(failure, known.failures + 1, jitter=random.random(), asked_seconds=asked)
            if isinstance(what, Fault) and not known.last_successful_at:
                # It was never there: a wrong name or port, for all we know.
                host_failures = min(host_failures or _NEVER_THERE, _NEVER_THERE)
        aside = await self.frontier.hosts.postpone(
            host, pause, failed=True, host_failures=host_failures, reason=reason or "unreachable"
        )
        if aside:
            self.outlook.gone(host)
        else:
            self.outlook.rests(host, mono() + pause)
        return pause, aside

    async def _validators(self, visits: Iterable[Visit]) -> dict[int, str]:
        """What we have of pages that are visited again, by their numbers."""
        by_crawl: dict[str, list[Visit]] = {}
        for visit in visits:
            if visit.found == "revisit":
                by_crawl.setdefault(visit.crawl, []).append(visit)
        known: dict[int, str] = {}
        for crawl, again in by_crawl.items():
            values = await self.frontier.validators.recall(crawl, [visit.url for visit in again])
            known.update({visit.number: value for visit, value in zip(again, values, strict=True) if value})
        return known


def _path(target: Target) -> str:
    if not target.whole:
        return target.rest
    return target.url[target.url.find("/", len(target.scheme) + 3) :]
