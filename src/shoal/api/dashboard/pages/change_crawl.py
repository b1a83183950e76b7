"""Changing a crawl while it runs: the options that an open crawl can change, as a form with their current values."""

from __future__ import annotations

from typing import Any

from shoal.api.auth import Role
from shoal.api.dashboard.components import form, path
from shoal.api.dashboard.html import E, Node
from shoal.api.dashboard.pages.new_crawl import option_field, option_text, option_value
from shoal.api.dashboard.view import View
from shoal.model.crawl import Crawl, CrawlKind
from shoal.model.crawl_options import CHANGEABLE, options
from shoal.model.crawl_spec import CrawlSpec
from shoal.model.option import Option


def changeable() -> list[Option]:
    return [option for option in options(CrawlSpec) if option.attribute in CHANGEABLE]


def change_form(view: View, crawl: Crawl, values: dict[str, Any]) -> Node:
    """Return the form, if the caller may use it. `values` are the current values, by attribute."""
    if not crawl.state.open or crawl.kind is not CrawlKind.OWN or not view.may(Role.SUBMIT):
        return None
    # Only the fields that the user changes are sent: another operator may have changed the others.
    before = [
        E.input(type="hidden", name=f"was-{option.name}", value=option_text(option, values)) for option in changeable()
    ]
    return E.details(
        E.summary("Change settings"),
        form(
            f"{path('crawls', crawl.id)}/change", view.proof, before,
            E.div([option_field(option, values) for option in changeable()], class_="fields"),
            E.button("Change", type="submit", class_="main"),
        ),
    )  # fmt: skip


def change_of(fields: dict[str, str]) -> dict[str, Any]:
    """Return the body of the request: the options that differ from the values that the form was created with."""
    changes: dict[str, Any] = {}
    for option in changeable():
        before = fields.get(f"was-{option.name}", "").strip()
        if option.kind is bool:
            if f"has-{option.name}" in fields and (option.name in fields) != (before == "True"):
                changes[option.attribute] = option.name in fields
            continue
        text = fields.get(option.name, "").strip()
        if text.split() != before.split():
            changes[option.attribute] = option_value(option, option.name, text) if text else _empty_value(option)
    return changes


def _empty_value(option: Option) -> Any:
    """Return the value of an empty field: no limit, no pattern, or the default."""
    return option.default if option.kind in (int, float) else type(option.default)()
