"""The configured responses of the site, as values that are sent to its process as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tests.site.tree import Tree

HTML = "text/html; charset=utf-8"


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer. Headers go out as they are, in Latin-1, whatever is in them.

    `size` fills the body up to so many bytes. `after` seconds pass before the first byte, `lasting` seconds between
    the first and the last. `cut` closes the connection after so many bytes of the body, of which all were promised.
    `fault` is "close" (no answer at all), "reset", "silent" (nothing ever comes), "endless" (a body without an end).
    With `etag` or `modified`, a request that has the same validator is answered by 304 without a body.
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


class Answers(msgspec.Struct, frozen=True, tag="answers"):
    """The responses of a host at a path ("*": all other paths): one after the other, the last one forever."""

    host: str
    path: str
    answers: tuple[Answer, ...]


class Plant(msgspec.Struct, frozen=True, tag="plant"):
    tree: Tree


class Shut(msgspec.Struct, frozen=True, tag="shut"):
    """Connections to the address are refused, those that are open are closed."""

    address: str


class Open(msgspec.Struct, frozen=True, tag="open"):
    address: str


Order = Answers | Plant | Shut | Open


def page(*links: str, title: str = "A page", head: str = "", body: str = "") -> Answer:
    """An HTML page with links."""
    return Answer(body=html(links, title, head, body))


def html(links: Iterable[str] = (), title: str = "A page", head: str = "", body: str = "") -> str:
    anchors = "".join(f'<p><a href="{link}">a link</a>' for link in links)
    return f"<!doctype html><html><head><title>{title}</title>{head}</head><body>{anchors}{body}</body></html>"


def robots(text: str = "", **more: object) -> Answer:
    """A robots.txt."""
    return msgspec.structs.replace(Answer(body=text, type="text/plain"), **more)


def redirect(location: str | None, status: int = 302, **more: object) -> Answer:
    headers = () if location is None else (("Location", location),)
    return msgspec.structs.replace(Answer(status=status, headers=headers, body="Elsewhere."), **more)
