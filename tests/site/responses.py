"""The configured responses of the site, as values that are sent to its process as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tests.site.tree import Tree

HTML = "text/html; charset=utf-8"


class Response(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One response. Headers are sent unchanged, in Latin-1, even if they are invalid.

    `size` pads the body to so many bytes. `after` seconds pass before the first byte, `lasting` seconds between
    the first and the last. `cut` closes the connection after so many bytes of the body, although Content-Length is
    its whole length. `fault` is "close" (no response at all), "reset", "silent" (nothing is ever sent) or "endless" (a
    body without an end). With `etag` or `modified`, a request with the same validator gets a 304 without a body.
    """

    status: int = 200
    body: str = ""
    type: str = HTML
    headers: tuple[tuple[str, str], ...] = ()
    etag: str = ""
    modified: str = ""
    size: int = 0
    after: float = 0.0
    lasting: float = 0.0
    cut: int = -1
    fault: str = ""


class Responses(msgspec.Struct, frozen=True, tag="responses"):
    """The responses of a host at a path ("*": all other paths): one after the other, the last one forever."""

    host: str
    path: str
    responses: tuple[Response, ...]


class Plant(msgspec.Struct, frozen=True, tag="plant"):
    tree: Tree


class Shut(msgspec.Struct, frozen=True, tag="shut"):
    """Refuse new connections to the address and close the open ones."""

    address: str


class Open(msgspec.Struct, frozen=True, tag="open"):
    address: str


Order = Responses | Plant | Shut | Open


def page(*links: str, title: str = "A page", head: str = "", body: str = "") -> Response:
    """An HTML page with links."""
    return Response(body=html(links, title, head, body))


def html(links: Iterable[str] = (), title: str = "A page", head: str = "", body: str = "") -> str:
    anchors = "".join(f'<p><a href="{link}">a link</a>' for link in links)
    return f"<!doctype html><html><head><title>{title}</title>{head}</head><body>{anchors}{body}</body></html>"


def robots(text: str = "", **more: object) -> Response:
    """A robots.txt."""
    return msgspec.structs.replace(Response(body=text, type="text/plain"), **more)


def redirect(location: str | None, status: int = 302, **more: object) -> Response:
    headers = () if location is None else (("Location", location),)
    return msgspec.structs.replace(Response(status=status, headers=headers, body="Elsewhere."), **more)
