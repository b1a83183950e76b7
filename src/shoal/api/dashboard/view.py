"""A page of the dashboard: its request, and its content with the parts that stay live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request

from shoal.api.auth import Caller, Role
from shoal.api.dashboard.fleet import Fleet
from shoal.api.dashboard.html import E, Element, Node, elements, render
from shoal.api.request import ApiServer, RequestContext

_LIVE = "data-part"


class DashboardPage(NamedTuple):
    """A page. `section` is the entry of the menu that it belongs to."""

    title: str
    content: Node
    section: str = ""
    # Show this path instead.
    redirect: str = ""


class View(RequestContext):
    """A page's request: its path, query and caller. The same for a browser's request and for the live updates of it."""

    def __init__(
        self, server: ApiServer, fleet: Fleet, caller: Caller, *, path: str, params: Mapping[str, str], query: str,
        proof: str = "", for_updates: bool = False,
    ) -> None:  # fmt: skip
        scope = {
            "type": "http", "method": "GET", "path": path, "path_params": dict(params),
            "query_string": query.encode(), "headers": [],
        }  # fmt: skip
        super().__init__(Request(scope), server, caller)
        self.fleet = fleet
        self.rates = fleet.rates
        self.address = path
        self.query = query
        # The proof that forms contain. It differs between sessions, so no live part may contain a form with fields.
        self.proof = proof
        # Only live parts are used: expensive content outside of them may be left out.
        self.for_updates = for_updates

    def may(self, role: Role, *, fleet_wide: bool = False) -> bool:
        """Whether to show content that requires this role. The API checks the role again."""
        return self.caller.role >= role and not (fleet_wide and self.caller.app)


def live(name: str, *content: Node, tag: str = "div", **attributes: str) -> Element:
    """A part of a page that is sent again when it changes."""
    return E.build(tag)(*content, id=f"part-{name}", data_part=name, **attributes)


def live_parts(page: DashboardPage) -> dict[str, str]:
    """The live parts of a page by name, as the HTML inside them."""
    parts: dict[str, str] = {}
    for element in elements(page.content):
        name = element.attributes.get(_LIVE)
        if isinstance(name, str):
            parts[name] = render(element.children)
    return parts
