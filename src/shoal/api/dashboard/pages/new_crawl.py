"""A new crawl: every option of a crawl as a form, derived from its declaration, with the estimate beside it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from shoal.api.auth import Role
from shoal.api.dashboard.components import duration, facts, form, note, number, rate, size
from shoal.api.dashboard.html import E, Node, render
from shoal.api.dashboard.view import DashboardPage, View
from shoal.errors import InvalidInput, InvalidLimit, InvalidUrl
from shoal.model.crawl_options import options
from shoal.model.crawl_request import CrawlRequest
from shoal.model.crawl_spec import SCOPES
from shoal.model.option import GROUPS, Option
from shoal.model.validation import WIDEST
from shoal.operations.describe import describe
from shoal.operations.plan import PAGE_BYTES, plan
from shoal.operations.seeds import seed_target
from shoal.operations.submit import parse, to_submission, with_output

# Shown at once. The others are folded, by the groups of `shoal crawl --help`.
_FIRST = ("seeds", "name", "scope", "max_pages", "delay_seconds", "outputs")
_LONG = ("seeds", "allow", "deny", "headers", "attributes")
_TITLES = {
    "output": "Output", "crawl": "Crawl", "scope": "Scope", "limits": "Limits", "politeness": "Politeness",
    "requests": "Requests", "": "More",
}  # fmt: skip
# Help texts for fields whose description, which is written for the API, would confuse the user of a form.
_HELP = {
    "seeds": "Start URLs, one per line.",
    "name": "The crawl's id. Leave it empty to get one.",
    "outputs": "Output URIs, or names from [outputs] in the workers' settings, separated by commas.",
}
# An estimate needs a response time, which is not an option of a crawl.
_RESPONSE_SECONDS = 0.2


def _options() -> dict[str, Option]:
    return {option.name: option for option in options(CrawlRequest) if not option.internal and option.name != "joins"}


async def new_crawl_page(view: View) -> DashboardPage:
    values = await _like(view)
    known = _options()
    first = [option_field(known[name], values) for name in _FIRST]
    groups: dict[str, list[Node]] = {}
    for name, option in known.items():
        if name not in _FIRST and not (name == "ignore_robots" and not view.may(Role.ADMIN)):
            groups.setdefault(option.flag.group if option.flag else "", []).append(option_field(option, values))
    folded = [
        E.details(E.summary(_TITLES[group]), E.div(groups[group], class_="fields"))
        for group in (*GROUPS, "")
        if group in groups
    ]
    content: list[Node] = [
        E.h1("New crawl"),
        E.div(
            form(
                "/new/start", view.proof, E.div(first, class_="fields"), folded,
                E.p(E.button("Start the crawl", type="submit", class_="main")),
                data_check="/new/check", data_show="check",
            ),
            E.div(E.h2("Estimate"), E.div(_estimate_hint(), id="check", aria_live="polite"), class_="side"),
            class_="beside",
        ),
    ]  # fmt: skip
    return DashboardPage("New crawl", content, "New crawl")


async def _like(view: View) -> dict[str, Any]:
    """The options of another crawl, to clone it. Secrets are not shown, so they have to be typed again."""
    like = view.text("like")
    if not like:
        return {}
    view.request.path_params["crawl"] = like
    described = await describe(view.frontier, await view.crawl())
    values = {**msgspec.structs.asdict(described.limits), **described.policy}
    values["scope"] = values.pop("reach", "host")
    for name in ("cookie", "auth", "notify", "headers", "expires_at"):
        values.pop(name, None)
    return values


def option_field(option: Option, values: dict[str, Any]) -> Node:
    name, kind = option.name, option.kind
    identity = f"field-{name}"
    value = values.get(option.attribute, option.default)
    label = E.label(name.replace("_", " ").capitalize(), for_=identity)
    described = f"help-{name}"
    text = _HELP.get(name, option.description.replace("`", "").replace("''", "empty"))
    if kind is int and option.default == 0 and name.startswith("max_") and "0" not in text:
        text = f"{text} 0: no limit."
    help_ = E.p(text, class_="help", id=described)
    entry: Node
    if kind is bool:
        # A checkbox that is off is not sent: the hidden field shows that the form had it.
        entry = [
            E.input(type="hidden", name=f"has-{name}", value="1"),
            E.input(type="checkbox", name=name, id=identity, checked=bool(value), aria_describedby=described),
        ]
    elif name == "scope":
        entry = E.select(
            [E.option(scope, value=scope, selected=scope == value) for scope in SCOPES], name=name, id=identity,
            aria_describedby=described,
        )  # fmt: skip
    elif kind in (int, float):
        entry = E.input(
            type="number", name=name, id=identity, value=option_text(option, values) or None, min=_bound(option.least),
            max=_bound(option.most), step="1" if kind is int else "any", aria_describedby=described,
        )  # fmt: skip
    elif name in _LONG:
        hint = "NAME: VALUE" if kind is not tuple and name in ("headers", "attributes") else ""
        if name == "seeds":
            hint = "https://example.org/"
        entry = E.textarea(
            option_text(option, values), name=name, id=identity, aria_describedby=described, placeholder=hint or None,
            required=name == "seeds",
        )  # fmt: skip
    else:
        secret = name in ("cookie", "auth")
        entry = E.input(
            type="password" if secret else "text", name=name, id=identity,
            value=option_text(option, values) or None,
            autocomplete="off", aria_describedby=described,
        )  # fmt: skip
    return E.div(label, entry, help_)


def option_text(option: Option, values: dict[str, Any]) -> str:
    """The value of an option as its field shows it."""
    value = values.get(option.attribute, option.default)
    if value is None or value is msgspec.NODEFAULT or isinstance(value, dict):
        return ""
    if isinstance(value, list | tuple):
        return ("\n" if option.name in _LONG else ", ").join(map(str, value))
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _bound(value: float | None) -> str | None:
    return None if value is None or value > WIDEST else f"{value:.0f}" if value == int(value) else f"{value:g}"


def request_of(fields: dict[str, str]) -> dict[str, Any]:
    """Return the request of a form, with only the values that differ from the defaults."""
    request: dict[str, Any] = {}
    for name, option in _options().items():
        text = fields.get(name, "").strip()
        if option.kind is bool:
            if f"has-{name}" in fields and (name in fields) != bool(option.default):
                request[name] = name in fields
            continue
        if not text:
            continue
        value = option_value(option, name, text)
        if option.default is msgspec.NODEFAULT or value != msgspec.to_builtins(option.default):
            request[name] = value
    return request


def option_value(option: Option, name: str, text: str) -> Any:
    if option.kind in (int, float):
        try:
            value = option.kind(text)
        except ValueError:
            raise InvalidInput(f"{name} is {text!r:.40}: write a number.") from None
        return value
    if option.kind is str:
        return text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if name in ("headers", "attributes"):
        pairs = [line.partition(":" if name == "headers" else ("=" if "=" in line else ":")) for line in lines]
        if any(not mark for _, mark, _ in pairs):
            raise InvalidInput(f"{name}: write NAME: VALUE on each line.")
        return {key.strip(): value.strip() for key, _, value in pairs}
    if name in _LONG:
        return lines
    return [part.strip() for part in text.replace("\n", ",").split(",") if part.strip()]


async def check_request(view: View, fields: dict[str, str]) -> str:
    """Return the error in the form, or the estimate for the crawl. Nothing is changed."""
    if not fields.get("seeds", "").strip():
        return render(_estimate_hint())
    try:
        request = parse(json.loads(msgspec.json.encode(request_of(fields))), view.server.spider_options)
        assert isinstance(request, CrawlRequest)  # noqa: S101
        request = with_output(request, view.server.settings.outputs, as_in="the field outputs")
        to_submission(request, networks=view.server.settings.fetch.allow_networks)
        hosts = len({seed_target(seed).host for seed in request.seeds})
    except (InvalidInput, InvalidLimit, InvalidUrl) as error:
        return render(note("bad", str(error)))
    pages = request.max_pages
    if not pages:
        return render([
            note("good", "The request is valid."),
            E.p(f"It starts from {number(hosts)} host{'' if hosts == 1 else 's'}. Set max pages to see an estimate."),
        ])  # fmt: skip
    made = plan(
        pages=max(pages, hosts), hosts=hosts, delay=request.delay_seconds, response=_RESPONSE_SECONDS,
        page_bytes=PAGE_BYTES,
    )  # fmt: skip
    return render([
        note("good", "The request is valid."),
        facts([
            ("Pages", f"{number(made.pages)} on {number(made.hosts)} host{'' if made.hosts == 1 else 's'}"),
            ("Time", f"{duration(made.seconds)} at {rate(made.pages_per_second)} pages/s"),
            ("Bottleneck", made.limit),
            ("Workers", f"{made.workers_useful:,} useful"),
            ("Store", f"{size(made.store_bytes_most)} at most"),
            ("Network", f"{size(made.bytes_per_second)}/s, {size(made.bytes_total)} in all"),
        ]),
        E.p(f"Estimate of shoal plan for the hosts of the start URLs, with pages of {size(PAGE_BYTES)} and a response "
            f"time of {_RESPONSE_SECONDS:g} s.", class_="quiet"),
    ])  # fmt: skip


def _estimate_hint() -> Node:
    return E.p("Enter a start URL to check the request and see an estimate.", class_="quiet")
