"""HTML as values: every text and every attribute is escaped, because there is no way to pass markup.

`E.p("a < b", class_="note")` is a paragraph. Text of foreign pages may be passed as it is: characters that change the
direction of text, and other invisible ones, are replaced. Attributes that would run a script or set a style are
refused, so a page keeps to its Content-Security-Policy by construction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from html import escape
from typing import Union

Node = Union["Element", str, int, None, Iterable["Node"]]
Value = str | int | float | bool | None

_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")
_VOID = frozenset(("br", "hr", "img", "input", "link", "meta"))
# Attributes with an address. Only this server's paths and addresses of the web are allowed: no javascript: or data:.
_ADDRESSES = frozenset(("href", "src", "action", "formaction", "data-live"))
_SAFE_ADDRESS = re.compile(r"(?:/(?!/)|#|\?|https?://|ftp://)", re.IGNORECASE)
# Controls, and marks that reorder or hide text.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
# SVG's own spelling.
_CAMEL = ("viewBox", "preserveAspectRatio")


class Element:
    """An element of a page. Immutable; create it with `E`."""

    __slots__ = ("attributes", "children", "tag")

    def __init__(self, tag: str, attributes: dict[str, Value], children: tuple[Node, ...]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children = children

    def __str__(self) -> str:
        return render(self)


class _Builder:
    def __getattr__(self, tag: str) -> Callable[..., Element]:
        if not _NAME.match(tag):
            raise AttributeError(tag)
        return self.build(tag)

    def build(self, tag: str) -> Callable[..., Element]:

        def build(*children: Node, **attributes: Value) -> Element:
            return Element(tag, {_attribute(name): value for name, value in attributes.items()}, children)

        return build


E = _Builder()


def elements(node: Node) -> Iterator[Element]:
    """All elements of a tree, parents first."""
    if isinstance(node, Element):
        yield node
        yield from elements(node.children)
    elif node is not None and not isinstance(node, str | int):
        for child in node:
            yield from elements(child)


def render(node: Node) -> str:
    pieces: list[str] = []
    _write(node, pieces.append)
    return "".join(pieces)


def visible(text: str) -> str:
    """Return the text with its invisible characters replaced."""
    return _INVISIBLE.sub("\ufffd", text)


def _write(node: Node, write: Callable[[str], None]) -> None:
    """Write a node. Not a generator, for speed: the server does nothing else while it renders a page."""
    if node is None:
        return
    if isinstance(node, str):
        write(escape(visible(node)))
    elif isinstance(node, int):
        write(str(node))
    elif isinstance(node, Element):
        write(f"<{node.tag}")
        for name, value in node.attributes.items():
            if value is None or value is False:
                continue
            if name in _ADDRESSES and not _SAFE_ADDRESS.match(str(value)):
                continue
            write(f" {name}" if value is True else f' {name}="{escape(visible(str(value)))}"')
        write(">")
        if node.tag not in _VOID:
            for child in node.children:
                _write(child, write)
            write(f"</{node.tag}>")
    else:
        for child in node:
            _write(child, write)


@cache
def _attribute(name: str) -> str:
    if name in _CAMEL:
        return name
    spelled = name.rstrip("_").replace("_", "-")
    if not _NAME.match(spelled) or spelled.startswith("on") or spelled in ("style", "srcdoc"):
        raise ValueError(f"The attribute {spelled!r} is not allowed in a page.")
    return spelled
