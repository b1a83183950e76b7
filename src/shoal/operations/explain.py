"""Explain one URL of a crawl: whether it is visited, and if not, which rule excludes it.

The one implementation for `shoal explain`, the HTTP API, `Client.explain` and `Coordinator.explain`. It sends no
request and changes nothing: it applies the crawl's own rules to the URL and reads the frontier. Facts that only a
worker can know, e.g. the depth at which a link will be found, are reported as undecided.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from shoal.errors import InvalidUrl, UnknownCrawl
from shoal.frontier import Frontier
from shoal.frontier.hosts import Host
from shoal.frontier.inspect import store_seconds
from shoal.frontier.robots_cache import RobotsEntry
from shoal.frontier.samples import read_samples
from shoal.frontier.url_state import UrlPlace, UrlState
from shoal.leases.robots_gate import copy_name
from shoal.model.crawl import Crawl, CrawlKind, State
from shoal.model.crawl_options import flag_of
from shoal.model.crawl_spec import CrawlSpec
from shoal.operations.describe import find, waiting_for
from shoal.operations.known_urls import state_of
from shoal.operations.seeds import seed_target
from shoal.politeness.robots_policy import standing
from shoal.urls.canonical import Target, canonical
from shoal.urls.scope import Scope
from shoal.worker.crawl_context import CrawlContext

_LIMITS = {"max pages": "max_pages", "bytes": "max_bytes", "max time": "max_seconds", "expired": "expires_at"}


class Verdict(StrEnum):
    """The result in one word."""

    VISITED = "visited"
    """It was visited, or excluded for a reason that the frontier does not keep."""
    QUEUED = "queued"
    """It will be visited."""
    HELD = "held"
    """It is queued, and something must happen first: see the checks that do not pass."""
    FAILED = "failed"
    """It was requested without success, or its host was given up. It can be retried."""
    ALLOWED = "allowed"
    """No rule excludes it. It is visited once a page, a sitemap or a seed leads to it."""
    EXCLUDED = "excluded"
    """It is not visited: see the check that does not pass."""


@dataclass(frozen=True)
class Check:
    """One rule that was applied.

    name     what was checked: url, scope, patterns, trap, depth, robots.txt, limits, host, crawl or workers
    passed   False: it prevents a visit; None: undecided
    rule     the flag, or the file and line, that says so
    text     the finding as one sentence
    """

    name: str
    passed: bool | None
    rule: str
    text: str


@dataclass(frozen=True)
class Explanation:
    """Why a URL is visited or not. Times are seconds since 1970 on the store's clock, 0 = none.

    crawl      id of the crawl
    url        the URL as it was given
    canonical  its canonical form, by which the crawl knows it; '' if it is not a URL
    host       the host whose queue it belongs to
    verdict    the result in one word
    text       the result as one sentence
    state      where the URL is: unknown, waiting, leased, later, failed, set aside or done
    reason     why it failed or was set aside
    depth      links from the start URLs, if the frontier knows the visit
    ahead      visits of the crawl that are before it in its host's queue
    worker     the worker that has leased it
    until      when the lease expires, or when the visit is due
    checks     every rule that was applied, in the order in which a crawl applies them
    """

    crawl: str
    url: str
    canonical: str
    host: str
    verdict: Verdict
    text: str
    state: UrlPlace
    reason: str
    depth: int | None
    ahead: int | None
    worker: str
    until: float
    checks: tuple[Check, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict.value, "state": self.state.value}


async def explain(frontier: Frontier, crawl: Crawl, url: str) -> Explanation:
    """Explain a URL of a crawl. As for seeds, `example.org/docs` means http://example.org/docs."""
    try:
        target = seed_target(url)
    except InvalidUrl as error:
        check = Check("url", False, "", str(error))
        return _explanation(crawl, url, None, UrlState(UrlPlace.UNKNOWN), Verdict.EXCLUDED, str(error), [check])
    # Parameters such as utm_source are removed from a link before any other step.
    checks: list[Check] = []
    context = None if crawl.kind is CrawlKind.SCRAPY else CrawlContext(crawl, {}, {})
    _, state = await state_of(frontier, crawl, target)
    if context is not None and state.place is UrlPlace.UNKNOWN:
        cleaned = canonical(context.cleaned(target.url))
        if cleaned.url != target.url:
            checks.append(
                Check("url", True, "", f"Shoal removes query parameters from links to it: they lead to {cleaned.url}.")
            )
            target = cleaned
            _, state = await state_of(frontier, crawl, cleaned)
    if context is None:
        checks.append(Check("scope", None, "", "Scope and limits are in the settings of the Scrapy project."))
    else:
        checks += [*_rules(context, target, state), await _robots(frontier, context, target)]
    host = await frontier.hosts.get(target.host)
    now = await store_seconds(frontier)
    checks += [_host_check(host, now), _crawl_check(crawl)]
    if crawl.state is State.RUNNING:
        checks.append(await _workers_check(frontier, crawl))
    verdict, text = _conclude(crawl, target, state, checks, now)
    if state.place in (UrlPlace.DONE, UrlPlace.UNKNOWN) and verdict is not Verdict.EXCLUDED:
        verdict, text, state = await _remembered(frontier, crawl, target, state, verdict, text)
    return _explanation(crawl, url, target, state, verdict, text, checks)


def _explanation(
    crawl: Crawl, url: str, target: Target | None, state: UrlState, verdict: Verdict, text: str, checks: list[Check]
) -> Explanation:
    return Explanation(
        crawl=crawl.id, url=url, canonical=target.url if target else "", host=target.host if target else "",
        verdict=verdict, text=text, state=state.place, reason=state.reason,
        depth=state.visit.depth if state.visit else None, ahead=state.ahead, worker=state.worker, until=state.until,
        checks=tuple(checks),
    )  # fmt: skip


def _rules(context: CrawlContext, target: Target, state: UrlState) -> list[Check]:
    """Check the rules that need only the URL and its state."""
    spec = context.policy
    seed = target.url in {_canonical(seed) for seed in spec.seeds} or (
        state.visit is not None and state.visit.found == "seed"
    )
    checks = [_scope(spec, context.scope, target, seed), _patterns(spec, target, seed)]
    if target.scheme == "ftp" and not context.ftp:
        checks.append(Check("scope", False, "", "Its scheme is ftp, and no start URL is an FTP URL."))
    if not spec.follow and not seed:
        rule = "--no-follow"
        checks.append(Check("scope", False, rule, "Links are not followed: only the start URLs are visited."))
    trap = "" if seed else context.trap(target, time.time())
    if not spec.traps:
        checks.append(Check("trap", True, "--follow-traps", "Links that look like a trap are followed."))
    elif trap:
        text = f"It looks like a {trap}. Allow such links with --follow-traps."
        checks.append(Check("trap", False, trap, text))
    else:
        checks.append(Check("trap", True, "", "It does not look like a trap."))
    return [*checks, _depth(spec, state, seed), *_host_limits(spec, state)]


def _canonical(seed: str) -> str:
    try:
        return canonical(seed).url
    except InvalidUrl:
        return ""


def _scope(spec: CrawlSpec, scope: Scope, target: Target, seed: bool) -> Check:
    rule = f"{flag_of('scope')} {spec.scope}"
    if seed:
        return Check("scope", True, "", "It is a start URL.")
    if not scope.verdict(target).startswith("scope: other"):
        return Check("scope", True, rule, "It is in scope.")
    hosts = sorted({canonical(url).host for url in spec.seeds if _canonical(url)})
    shown = ", ".join(hosts[:5]) + (" and others" if len(hosts) > 5 else "")
    if spec.scope == "prefix":
        return Check("scope", False, rule, f"It is not below the path of a start URL ({shown}).")
    what = "on the host" if spec.scope == "host" else "in the domain"
    text = f"It is not {what} of a start URL ({shown}), or of a page that a start URL redirects to."
    return Check("scope", False, rule, text)


def _patterns(spec: CrawlSpec, target: Target, seed: bool) -> Check:
    """Check the patterns only, not the scope."""
    patterns = Scope("any", allow=spec.allow, deny=spec.deny, deny_extensions=spec.deny_extensions)
    reason = patterns.verdict(target, seed=seed)
    if not reason:
        has_patterns = spec.allow or spec.deny or spec.deny_extensions
        return Check("patterns", True, "", "No pattern excludes it." if has_patterns else "The crawl has no patterns.")
    kind, _, value = reason.removeprefix("scope: ").partition(" ")
    if kind == "extension":
        rule, text = f"{flag_of('deny_extensions')} {value.lstrip('.')}", f"URLs that end in {value} are skipped."
    elif kind == "deny":
        pattern = value.removeprefix("pattern ")
        rule, text = f"{flag_of('deny')} {pattern!r}", f"It matches the deny pattern {pattern}."
    else:
        rule = " ".join(f"{flag_of('allow')} {pattern!r}" for pattern in spec.allow[:5])
        text = "It matches no allow pattern."
    return Check("patterns", False, rule, text)


def _depth(spec: CrawlSpec, state: UrlState, seed: bool) -> Check:
    if spec.max_depth is None:
        return Check("depth", True, "", "The crawl has no depth limit.")
    rule = f"{flag_of('max_depth')} {spec.max_depth}"
    depth = 0 if seed else state.visit.depth if state.visit is not None else None
    if depth is None:
        return Check("depth", None, rule, f"It must be found at most {spec.max_depth} links from a start URL.")
    if depth > spec.max_depth:
        return Check("depth", False, rule, f"It was found {depth} links from a start URL.")
    return Check("depth", True, rule, f"It is {depth} links from a start URL.")


def _host_limits(spec: CrawlSpec, state: UrlState) -> list[Check]:
    checks = []
    for name, reached, most, unit in (
        ("max_pages_per_host", state.pages, spec.max_pages_per_host, "pages"),
        ("max_bytes_per_host", state.bytes, spec.max_bytes_per_host, "bytes"),
    ):
        if most:
            text = f"The crawl has {reached:,} of at most {most:,} {unit} of this host."
            checks.append(Check("limits", reached < most, f"{flag_of(name)} {most}", text))
    return checks


async def _robots(frontier: Frontier, context: CrawlContext, target: Target) -> Check:
    """Check the fleet's copy of robots.txt, which may be a day old."""
    if context.policy.ignore_robots:
        return Check("robots.txt", True, "--ignore-robots", "robots.txt is ignored.")
    file = f"{target.origin}/robots.txt"
    stored, now = await frontier.robots.read(target.host, copy_name(target, context.token))
    entry = RobotsEntry.unpack(stored)
    current = standing(entry.copy, token=context.token, now=now, unreachable=entry.unreachable_at > 0)
    if entry.copy is None or current.rules is None:
        if entry.unreachable_at:
            return Check("robots.txt", False, file, f"{file} is unreachable: no page is requested until it responds.")
        return Check("robots.txt", None, file, f"{file} has not been fetched yet; the host's first visit fetches it.")
    rule = entry.copy.rules.deciding_rule(target.path)
    if rule is None:
        return Check("robots.txt", True, file, f"No rule for {context.token} in {file} matches.")
    where = f"{file} line {rule.line}" if rule.line else file
    group = f" of group `User-agent: {rule.group}`" if rule.group else ""
    return Check("robots.txt", rule.allow, where, f"Rule `{rule}`{group} {'allows' if rule.allow else 'forbids'} it.")


def _host_check(host: Host, now: float) -> Check:
    if host.blocked:
        text = f"The host is blocked ({host.blocked}). Unblock it with `shoal hosts {host.name} --unblock`."
        return Check("host", False, f"shoal hosts {host.name} --block", text)
    if host.backoff_until > now:
        reason = f" after {host.backoff_reason}" if host.backoff_reason else ""
        wait = host.backoff_until - now
        return Check("host", False, "back-off", f"The host is paused{reason} for another {wait:.0f} s.")
    return Check("host", True, "", "The host is not blocked and not paused.")


def _crawl_check(crawl: Crawl) -> Check:
    if crawl.state is State.RUNNING:
        return Check("crawl", True, "", "The crawl is running.")
    if crawl.state is State.PAUSED:
        # A pause with a reason is Shoal's own, e.g. because an output is unavailable.
        command, reason = ("", f" ({crawl.why})") if crawl.why else (f"shoal pause {crawl.id}", "")
        return Check("crawl", False, command, f"The crawl is paused{reason}.")
    if limit := _LIMITS.get(crawl.why):
        return Check("limits", False, flag_of(limit), f"The crawl has reached a limit: {crawl.why}.")
    return Check("crawl", False, "", f"The crawl is {crawl.state.value}.")


async def _workers_check(frontier: Frontier, crawl: Crawl) -> Check:
    missing, workers = await asyncio.gather(waiting_for(frontier, crawl), frontier.workers.alive())
    if missing:
        return Check("workers", False, "", f"{missing[0].removeprefix('waiting: ').capitalize()}.")
    if not workers:
        return Check("workers", False, "", "No worker is connected to the store.")
    return Check("workers", True, "", f"Workers connected to the store: {len(workers)}.")


def _conclude(crawl: Crawl, target: Target, state: UrlState, checks: list[Check], now: float) -> tuple[Verdict, str]:
    not_passed = [check for check in checks if check.passed is False]
    rules = [check for check in not_passed if check.name not in ("host", "crawl", "workers")]
    blocking = [check for check in not_passed if check not in rules or check.name == "limits"]
    place = state.place
    if place is UrlPlace.DONE:
        return _done(rules)
    if place is UrlPlace.FAILED:
        return Verdict.FAILED, f"It failed: {state.reason}. Retry with `shoal failed {crawl.id} --retry`."
    if place is UrlPlace.SET_ASIDE:
        return Verdict.EXCLUDED, f"It is set aside by a limit ({state.reason}); a higher limit admits it again."
    if place is UrlPlace.LEASED:
        return Verdict.QUEUED, f"Worker {state.worker} has leased it."
    if place is UrlPlace.UNKNOWN:
        if not_passed and (rules or not crawl.state.open or not_passed[0].name == "host"):
            first = rules[0] if rules else not_passed[0]
            return Verdict.EXCLUDED, _because(first)
        return Verdict.ALLOWED, "The crawl has not found it yet. No rule excludes it."
    if not crawl.state.open:
        return Verdict.EXCLUDED, f"It was queued when the crawl ended ({crawl.why or crawl.state.value})."
    if place is UrlPlace.LATER:
        wait = max(0.0, state.until - now)
        text = f"It is visited again in {wait:.0f} s" if not state.reason else f"It is retried in {wait:.0f} s"
        verdict = Verdict.HELD if blocking else Verdict.QUEUED
        return verdict, f"{text}. {blocking[0].text}" if blocking else f"{text}."
    text = f"It is queued behind {state.ahead:,} visits of host {target.host}."
    forbidden = next((check for check in rules if check.name == "robots.txt"), None)
    if forbidden is not None:
        return Verdict.EXCLUDED, f"It is queued, and will not be requested. {_because(forbidden)}"
    if blocking:
        return Verdict.HELD, f"{text} {blocking[0].text}"
    return Verdict.QUEUED, text


def _done(rules: list[Check]) -> tuple[Verdict, str]:
    forbidden = next((check for check in rules if check.name == "robots.txt"), None)
    if forbidden is not None:
        return Verdict.EXCLUDED, f"It was excluded. {_because(forbidden)}"
    return Verdict.VISITED, "It was visited, or excluded after its request, e.g. because it redirects."


async def _remembered(
    frontier: Frontier, crawl: Crawl, target: Target, state: UrlState, verdict: Verdict, text: str
) -> tuple[Verdict, str, UrlState]:
    """Refine a verdict by the other data of the crawl: samples of exclusions, and validators of stored pages."""
    for reason, urls in (await read_samples(frontier, crawl)).items():
        if target.url in urls:
            text = f"It was {'excluded' if state.place is UrlPlace.DONE else 'found and not followed'}: {reason}."
            return Verdict.EXCLUDED, text, state._replace(reason=reason)
    if state.place is UrlPlace.DONE and any(await frontier.validators.recall(crawl.id, [target.url])):
        return Verdict.VISITED, "It was visited and stored.", state
    return verdict, text, state


def _because(check: Check) -> str:
    return f"{check.text} ({check.rule})" if check.rule else check.text


async def explain_by_id(frontier: Frontier, crawl_id: str, url: str) -> Explanation:
    """Explain a URL of the crawl with this id."""
    crawl = await find(frontier, crawl_id)
    if crawl.state is State.DELETED:
        raise UnknownCrawl(f"There is no crawl {crawl_id!r}.")
    return await explain(frontier, crawl, url)
