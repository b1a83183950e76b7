"""Hosts: lists of waiting, backing-off and blocked hosts; and one host with its delays, robots.txt and queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from shoal.api.auth import Role
from shoal.api.dashboard.components import (
    button,
    confirm,
    duration,
    empty,
    facts,
    field,
    foreign,
    form,
    more,
    note,
    number,
    path,
    table,
    timestamp,
)
from shoal.api.dashboard.html import E, Node
from shoal.api.dashboard.view import DashboardPage, View, live
from shoal.api.handlers.hosts import HostView, view_of
from shoal.api.pagination import make_cursor
from shoal.errors import InvalidUrl
from shoal.frontier.hosts import Host, PastBackOff
from shoal.frontier.inspect import blocked_host_names, list_crawls, pending_hosts, store_seconds, waiting_hosts
from shoal.frontier.robots_cache import RobotsEntry
from shoal.model.crawl import State
from shoal.model.crawl_spec import DEFAULT_USER_AGENT
from shoal.politeness.robots_rules import RobotsRule, Rules
from shoal.politeness.user_agent import product_token
from shoal.urls.canonical import canonical

_STATES = {"": "waiting", "backing-off": "backing off", "blocked": "blocked"}
_SHOWN = 50
_CRAWLS_CHECKED = 200
_RULES_SHOWN = 200
_SECTION = "Hosts"


async def hosts_page(view: View) -> DashboardPage:
    if opened := view.text("open").strip():
        name = urlsplit(opened).netloc.rpartition("@")[2] if "//" in opened else opened
        return DashboardPage("Hosts", None, _SECTION, redirect=path("hosts", view.frontier.hosts.name(name)))
    state = view.text("state", *_STATES)
    text = view.text("name").strip().lower()
    shard, name = view.cursor(tuple[Annotated[int, Meta(ge=0)], str], "hosts", state, text) or (0, "")
    paused = [crawl.key async for _, crawl in list_crawls(view.frontier) if crawl.state is State.PAUSED]
    hosts: list[HostView] = []
    following = None
    async for host_shard, host in _names(view, state, shard, name, paused):
        if text not in host:
            continue
        if len(hosts) == _SHOWN:
            following = make_cursor((shard, name), "hosts", state, text)
            break
        hosts.append(await view_of(view, await view.frontier.hosts.get(host), paused))
        shard, name = host_shard, host
    now = await store_seconds(view.frontier)
    links = [
        E.li(E.a(shown, href=path("hosts", state=key, name=text), aria_current="page" if key == state else None))
        for key, shown in _STATES.items()
    ]
    content: list[Node] = [
        E.h1("Hosts"),
        E.nav(E.ul(links), aria_label="Hosts by state"),
        E.form(
            field("Name contains", "name", text, kind="search", maxlength=253),
            E.input(type="hidden", name="state", value=state) if state else None,
            E.button("Search", type="submit"),
            action="/hosts", method="get", class_="row",
        ),
        _table(hosts, now, state, text),
        more(path("hosts", state=state, name=text, cursor=following) if following else None),
        E.form(
            field("Open a host by its name or one of its URLs", "open", maxlength=253, required=True,
                  placeholder="example.org"),
            E.button("Open", type="submit"),
            action="/hosts", method="get", class_="row",
        ),
    ]  # fmt: skip
    return DashboardPage("Hosts", content, _SECTION)


async def _names(
    view: View, state: str, shard: int, after: str, paused: list[str]
) -> AsyncIterator[tuple[int, str]]:  # fmt: skip
    """Yield the hosts in a state, with their shard, that follow a position."""
    frontier = view.frontier
    if state:
        names = set(await blocked_host_names(frontier)) if state == "blocked" else set()
        checked = 0
        if state == "backing-off":
            async for _, crawl in list_crawls(frontier):
                if crawl.state is State.RUNNING and checked < _CRAWLS_CHECKED:
                    checked += 1
                    names.update(host.host for host in await pending_hosts(frontier, crawl) if host.paused)
        for name in sorted(names):
            if name > after:
                yield 0, name
        return
    spiders = {""} | {crawl.limits.spider async for _, crawl in list_crawls(frontier) if crawl.state.open}
    for host_shard in range(shard, frontier.shards.count):
        for name in await waiting_hosts(frontier, host_shard, spiders, paused):
            if host_shard > shard or name > after:
                yield host_shard, name


def _table(hosts: list[HostView], now: float, state: str, text: str) -> Node:
    if not hosts:
        what = {"": "No host has waiting URLs", "backing-off": "No host backs off", "blocked": "No host is blocked"}
        return empty(what[state] + (f" and {text!r} in its name." if text else "."))
    rows: list[list[Node]] = [
        [
            E.a(host.name, href=path("hosts", host.name)), _state(host, now), number(host.waiting),
            number(len(host.crawls)), number(host.leases), mean_response(host),
            timestamp(host.last_finished_at, "relative"), str(host.failures),
        ]
        for host in hosts
    ]  # fmt: skip
    columns = (">Host", "State", "#Waiting", "#Crawls", "#Leases", "#Mean response", "=Last request", "#Failures")
    return table("Hosts", columns, rows)


def mean_response(host: Host) -> str:
    if host.mean_response_seconds:
        return duration(host.mean_response_seconds)
    return "under 1 ms" if host.last_successful_at else "–"


def _state(host: HostView, now: float) -> Node:
    if host.blocked:
        return E.span(f"blocked: {host.blocked}", class_="state lost")
    if host.backoff_until > now:
        return E.span(f"backs off: {host.backoff_reason}", class_="state late")
    if host.leases:
        return E.span("leased", class_="state running")
    if host.gate_at > now:
        return E.span("waits for its delay", class_="state finished")
    return E.span("ready", class_="state running") if host.waiting else E.span("idle", class_="state finished")


async def host_page(view: View) -> DashboardPage:
    frontier = view.frontier
    name = frontier.hosts.name(view.path("host"))
    paused = [crawl.key async for _, crawl in list_crawls(frontier) if crawl.state is State.PAUSED]
    host = await view_of(view, await frontier.hosts.get(name), paused)
    now = await store_seconds(frontier)
    content: list[Node] = [
        E.h1(name),
        live("state", E.p(_state(host, now)), _facts(host, await _effective_delay(view, host), now)),
        _actions(view, host, now),
        E.h2("Queue by crawl"),
        live("queue", _queue(host)),
        E.h2("Back-off history"),
        live("back-offs", _back_offs(await frontier.hosts.back_offs(name))),
        E.h2("robots.txt"),
        await _robots(view, host, now),
    ]
    return DashboardPage(name, content, _SECTION)


async def _effective_delay(view: View, host: HostView) -> str:
    """The delay that applies, and its source: the longest delay, as in the store's scripts."""
    if host.delay_seconds is not None:
        delays = [(host.delay_seconds, "set by an operator")]
    else:
        crawls = [await view.frontier.crawls.known(name) for name in list(host.crawls)[:_CRAWLS_CHECKED]]
        delays = [(crawl.limits.delay_seconds, f"set by crawl {crawl.id}") for crawl in crawls]
    delays.append((host.crawl_delay_seconds, "from its robots.txt"))
    delays.append((host.adaptive_delay_seconds, "from its response times"))
    seconds, source = max(delays, key=lambda delay: delay[0])
    return f"{seconds:g} s, {source}" if seconds else "none: no crawl waits for it"


def _facts(host: HostView, effective: str, now: float) -> Node:
    own = "set by each crawl" if host.delay_seconds is None else f"{host.delay_seconds:g} s, set by an operator"
    adaptive = duration(host.adaptive_delay_seconds) if host.adaptive_delay_seconds else "none"
    return facts(
        [
            ("Delay set by crawls or operators", own),
            ("Crawl-delay in robots.txt", f"{host.crawl_delay_seconds:g} s" if host.crawl_delay_seconds else "none"),
            ("Delay from response times", adaptive),
            ("Effective delay", effective),
            ("Slots", f"{host.places}, set by an operator" if host.places is not None else "set by each crawl"),
            ("Next request", "now" if max(host.gate_at, host.backoff_until) <= now
             else timestamp(max(host.gate_at, host.backoff_until), "relative")),
            ("Back-off", [host.backoff_reason or "errors", " until ", timestamp(host.backoff_until)]
             if host.backoff_until > now else "none"),
            ("Failures in a row", str(host.failures)),
            ("Mean response", mean_response(host)),
            ("Last request", timestamp(host.last_finished_at)),
            ("Last success", timestamp(host.last_successful_at)),
            ("Leases", number(host.leases)),
            ("Blocked", foreign(host.blocked) if host.blocked else "no"),
        ]
    )  # fmt: skip


def _actions(view: View, host: HostView, now: float) -> Node:
    if not view.may(Role.ADMIN, fleet_wide=True):
        return None
    own = path("hosts", host.name)
    delay = "" if host.delay_seconds is None else f"{host.delay_seconds:g}"
    acts: list[Node] = []
    if host.blocked:
        acts.append(button("Unblock", f"{own}/unblock", kind="main"))
    else:
        what = (
            f"Send no more requests to {host.name}. Its {host.waiting:,} waiting URLs fail, and can be retried later."
        )
        acts.append(confirm("Block…", what, f"{own}/block", f"Block {host.name}"))
        if host.failures or host.backoff_until > now:
            acts.append(button("Clear back-off", f"{own}/unblock"))
    return [
        E.div(acts, class_="actions"),
        form(
            f"{own}/set", view.proof,
            field("Delay in seconds; empty: as each crawl sets it", "delay_seconds", delay, kind="number", min=0,
                  max=86400, step="any"),
            field("Slots; empty: as each crawl sets them", "places", str(host.places or ""), kind="number", min=1,
                  max=32),
            E.button("Set", type="submit"), class_="row",
        ),
    ]  # fmt: skip


def _queue(host: HostView) -> Node:
    if not host.crawls:
        return E.p("No URL waits for this host.", class_="quiet")
    rows: list[list[Node]] = [
        [E.a(crawl, href=path("crawls", crawl)), number(count)]
        for crawl, count in sorted(host.crawls.items(), key=lambda pair: -pair[1])
    ]
    return table("Queue by crawl", (">Crawl", "#Waiting URLs"), rows)


def _back_offs(past: list[PastBackOff]) -> Node:
    if not past:
        return E.p("No back-off in the last seven days.", class_="quiet")
    rows: list[list[Node]] = [
        [timestamp(each.at), _length(each), number(each.failures), foreign(each.reason)] for each in past
    ]
    return table("Back-off history", ("=Began", "=Pause", "#Failures", ">Reason"), rows)


def _length(each: PastBackOff) -> str:
    if each.given_up:
        return "given up: its waiting URLs failed"
    return duration(each.seconds) if each.seconds else "–"


async def _robots(view: View, host: HostView, now: float) -> Node:
    """The fleet's copy of the rules, and whether it allows the URL that the user typed."""
    # The fleet stores one copy per token, in lower case.
    token = product_token(view.text("agent") or DEFAULT_USER_AGENT).lower()
    typed = view.text("url").strip()
    parts: list[Node] = []
    for scheme in ("https", "http"):
        data, _ = await view.frontier.robots.read(host.name, f"{scheme}://{host.name} {token}")
        entry = RobotsEntry.unpack(data)
        if entry.unreachable_at:
            parts.append(note("warn", f"{scheme}: unreachable at the last attempt, ", timestamp(entry.unreachable_at)))
        if entry.copy is None:
            continue
        rules = entry.copy.rules
        parts.append(E.h3(f"{scheme}://{host.name}/robots.txt"))
        parts.append(
            facts([
                ("Confirmed", timestamp(entry.copy.confirmed_at)),
                ("Crawl-delay", f"{rules.crawl_delay_seconds:g} s" if rules.crawl_delay_seconds else "none"),
                ("Sitemaps", [[foreign(sitemap), E.br()] for sitemap in rules.sitemaps[:10]] or "none"),
                ("Notes", [[foreign(text), E.br()] for text in rules.notes] or "none"),
                (f"Rules for {token}", _rules(rules.rules())),
            ])
        )  # fmt: skip
        if typed:
            parts.append(_decision(rules, f"{scheme}://{host.name}", typed, token))
    if not parts:
        parts.append(E.p(f"The fleet has no copy for {token}: it is fetched before the first page.", class_="quiet"))
    search = E.form(
        field("URL or path to check", "url", typed, maxlength=1000, placeholder="/private/page"),
        field("User-Agent", "agent", view.text("agent"), maxlength=500, placeholder=DEFAULT_USER_AGENT),
        E.button("Check", type="submit"), action=path("hosts", host.name), method="get", class_="row",
    )  # fmt: skip
    return [parts, search]


def _rules(rules: list[RobotsRule]) -> Node:
    if not rules:
        return "none: everything is allowed"
    hidden = len(rules) - _RULES_SHOWN
    return E.details(
        E.summary(f"{len(rules):,} rule{'' if len(rules) == 1 else 's'}"),
        E.ul([E.li(E.code(foreign(str(rule)))) for rule in rules[:_RULES_SHOWN]]),
        E.p(f"and {hidden:,} more", class_="quiet") if hidden > 0 else None,
    )


def _decision(rules: Rules, origin: str, typed: str, token: str) -> Node:
    """Whether the rules allow a URL, or a path of this origin."""
    url = typed if "//" in typed else f"{origin}/{typed.removeprefix('/')}"
    try:
        target = canonical(url)
    except InvalidUrl as error:
        return note("bad", str(error))
    allowed, rule = rules.allows(target.path), rules.deciding_rule(target.path)
    reason = "no rule matches" if rule is None else f"rule {rule}" + (f" in line {rule.line}" if rule.line else "")
    verdict = "allowed" if allowed else "disallowed"
    return note("good" if allowed else "bad", f"{target.path} is {verdict} for {token}: {reason}.")
