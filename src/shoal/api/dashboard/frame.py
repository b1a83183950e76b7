"""The frame of every page: head, menu, the form that buttons belong to, and Shoal's own script and style sheet."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from shoal.api.auth import Role
from shoal.api.dashboard.components import form
from shoal.api.dashboard.html import E, Node, render
from shoal.api.dashboard.view import DashboardPage, View
from shoal.urls.canonical import MAX_URL_BYTES
from shoal.version import __version__

_STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {
    "dashboard.css": "text/css; charset=utf-8", "dashboard.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}  # fmt: skip
# Scripts, styles, images and connections only from this server, and no markup that adds others.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    # With no-referrer, as in the API, browsers would send the forms of our own pages with `Origin: null`.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Vary": "Accept, Cookie",
}

# Name, path, the role it needs, whether it concerns the whole fleet.
_MENU = (
    ("Overview", "/", Role.READ, False),
    ("Crawls", "/crawls", Role.READ, False),
    ("New crawl", "/new", Role.SUBMIT, False),
    ("Hosts", "/hosts", Role.READ, True),
    ("Workers", "/workers", Role.READ, True),
    ("Audit trail", "/audit", Role.ADMIN, True),
)


@cache
def static(name: str) -> bytes:
    return (_STATIC / name).read_bytes()


@cache
def _address(name: str) -> str:
    """Return the address of a file, with a hash so that browsers cache the file until it changes."""
    return f"/static/{name}?{hashlib.sha256(static(name)).hexdigest()[:12]}"


def document(page: DashboardPage, view: View, *, live: str = "", note: Node = None, signed_in: bool = False) -> str:
    """The whole page. `live` is the address of its updates, `note` is the message about a change."""
    menu = [
        E.li(E.a(name, href=target, aria_current="page" if page.section == name else None))
        for name, target, role, fleet_wide in _MENU
        if view.may(role, fleet_wide=fleet_wide)
    ]
    find = E.form(
        E.input(type="search", name="url", id="find", placeholder="Find a URL  /", aria_label="Find a URL",
                required=True, maxlength=MAX_URL_BYTES),
        action="/find", method="get", class_="find", role="search",
    )  # fmt: skip
    who: Node = None
    if signed_in:
        who = form("/sign-out", view.proof, E.button(f"Sign out {view.caller.name}", type="submit"), class_="who")
    return _html(
        page.title,
        [
            E.a("Skip to the content", href="#main", class_="skip"),
            E.header(E.a("Shoal", href="/", class_="brand"), E.nav(E.ul(menu), aria_label="Pages"), find, who),
            E.main(
                E.p(id="trouble", class_="note bad", role="alert", hidden=True), note, page.content, id="main",
                tabindex=-1,
            ),
            form("", view.proof, id="act"),
            E.footer(f"Shoal {__version__} · ", E.a("API", href="/openapi.json")),
        ],
        live,
    )  # fmt: skip


def sign_in(proof: str, following: str, problem: str = "") -> str:
    content = E.main(
        E.h1("Shoal"),
        E.p(problem, class_="note bad", role="alert") if problem else None,
        form(
            "/sign-in", proof,
            E.input(type="hidden", name="next", value=following),
            E.label("Token", for_="token"),
            E.input(type="password", name="token", id="token", autocomplete="current-password", required=True,
                    autofocus=True, maxlength=500),
            E.button("Sign in", type="submit", class_="main"),
        ),
        E.p("Create a token with ", E.code("shoal serve --make-token ROLE"), " and add the line that it prints to ",
            E.code("[tokens]"), " in the server's shoal.toml.", class_="quiet"),
        id="main", class_="sign-in",
    )  # fmt: skip
    return _html("Sign in", content, "")


def _html(title: str, content: Node, live: str) -> str:
    page = E.html(
        E.head(
            E.meta(charset="utf-8"),
            E.meta(name="viewport", content="width=device-width, initial-scale=1"),
            E.title(f"{title} · Shoal"),
            E.link(rel="icon", href=_address("icon.svg"), type="image/svg+xml"),
            E.link(rel="stylesheet", href=_address("dashboard.css")),
            E.script(src=_address("dashboard.js"), defer=True),
        ),
        E.body(content, data_live=live or None),
        lang="en",
    )
    return "<!doctype html>\n" + render(page)
