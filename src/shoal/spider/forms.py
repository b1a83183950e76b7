"""HTML forms: the fields that a browser would send, and the request that sends them (HTML standard 4.10.21).

Owns which controls count, their values and their encoding. It does not run scripts, and sends no files.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from shoal.errors import InvalidInput
from shoal.spider.follow import FORM_TYPE, encode_form

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_MULTIPART = "multipart/form-data"
_PLAIN = "text/plain"
_CONTROLS = frozenset({"input", "select", "textarea", "button"})
_BUTTONS = frozenset({"submit", "image"})
_PUSHED_ONLY = frozenset({"submit", "image", "reset", "button"})
# A form directly inside of these is closed at once by the parser: its controls follow it.
_TABLE_PARTS = frozenset({"table", "tbody", "thead", "tfoot", "tr"})
_NEWLINE = re.compile(r"\r\n|\r|\n")
_SHOWN = 80


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """A form as a browser would submit it."""

    # Absolute.
    action: str
    # GET or POST.
    method: str
    # Names and values, in the order of the page.
    fields: tuple[tuple[str, str], ...]
    # The content type of a POST.
    enctype: str = FORM_TYPE
    charset: str = "utf-8"
    # Names of the fields that take a file; they are sent empty.
    files: frozenset[str] = frozenset()

    def filled(self, values: Mapping[str, Any]) -> Form:
        """The form with other values. A list is one field for each of its values, None removes the field.

        A field that the form does not have is added: pages add fields by scripts.
        """
        fields: list[tuple[str, str]] = []
        put: set[str] = set()
        for name, value in self.fields:
            if name not in values:
                fields.append((name, value))
            elif name not in put:
                put.add(name)
                fields += _values(name, values[name])
        for name in values:
            if name not in put:
                fields += _values(name, values[name])
        return msgspec.structs.replace(self, fields=tuple(fields))

    def content(self) -> tuple[str, bytes, str]:
        """The query of a GET, or the body of a POST and its content type."""
        fields = [(_crlf(name), _crlf(value)) for name, value in self.fields]
        if self.method == "GET":
            return encode_form(fields, self.charset), b"", ""
        if self.enctype == _MULTIPART:
            return "", *_multipart(fields, self.files, self.charset)
        if self.enctype == _PLAIN:
            text = "".join(f"{name}={value}\r\n" for name, value in fields)
            return "", text.encode(self.charset, "xmlcharrefreplace"), f"{_PLAIN}; charset={self.charset}"
        return "", encode_form(fields, self.charset).encode(), FORM_TYPE


def read(
    root: LexborHTMLParser, css: str, *, url: str, charset: str, absolute: Any, button: str | bool | None = None
) -> Form:
    """The form that a selector matches, or that has the element it matches. `absolute` resolves a link of the page.

    `button` is the selector of the button that is pushed; None is the first one, False is none.
    """
    matching = root.css(css)
    if not matching:
        raise InvalidInput(f"No element of {url} matches {css[:_SHOWN]!r}; a selector of a form is e.g. form#login.")
    owners = _owners(root)
    form = matching[0] if matching[0].tag == "form" else owners.get(matching[0].mem_id) or _ancestor(matching[0])
    if form is None:
        raise InvalidInput(f"{css[:_SHOWN]!r} on {url} matches <{matching[0].tag}>, which is in no form.")
    controls = [node for node in _walk(root) if node.tag in _CONTROLS and _same(owners.get(node.mem_id), form)]
    pushed = _pushed(controls, button, root, url)
    override = pushed.attributes if pushed is not None else {}
    attributes = form.attributes
    method = (override.get("formmethod") or attributes.get("method") or "get").strip().upper()
    action = override.get("formaction") or attributes.get("action") or ""
    enctype = (override.get("formenctype") or attributes.get("enctype") or "").strip().lower()
    charset = _charset(attributes.get("accept-charset") or "", charset)
    fields = [field for node in controls for field in _entries(node, pushed, charset)]
    return Form(
        action=absolute(action) if action.strip() else url.partition("#")[0],
        method="POST" if method == "POST" else "GET",
        fields=tuple(fields),
        enctype=enctype if enctype in (_MULTIPART, _PLAIN) else FORM_TYPE,
        charset=charset,
        files=frozenset(node.attributes.get("name") or "" for node in controls if _kind(node) == "file"),
    )


def _walk(root: LexborHTMLParser) -> Iterator[LexborNode]:
    return iter(()) if root.root is None else root.root.traverse(include_text=False)


def _owners(root: LexborHTMLParser) -> dict[int, LexborNode]:
    """The form of each control, by the control's id."""
    by_id: dict[str, LexborNode] = {}
    for form in root.css("form[id]"):
        by_id.setdefault(form.attributes.get("id") or "", form)
    owners: dict[int, LexborNode] = {}
    # The form that the parser closed at once because it is between the parts of a table.
    pending: LexborNode | None = None
    for node in _walk(root):
        if node.tag == "form":
            misplaced = node.parent is not None and node.parent.tag in _TABLE_PARTS and node.child is None
            pending = node if misplaced else None
        elif node.tag in _CONTROLS:
            named = node.attributes.get("form")
            owner = by_id.get(named) if named else _ancestor(node) or pending
            if owner is not None:
                owners[node.mem_id] = owner
    return owners


def _ancestor(node: LexborNode) -> LexborNode | None:
    parent = node.parent
    while parent is not None and parent.tag != "form":
        parent = parent.parent
    return parent


def _same(node: LexborNode | None, other: LexborNode) -> bool:
    return node is not None and node.mem_id == other.mem_id


def _pushed(
    controls: list[LexborNode], button: str | bool | None, root: LexborHTMLParser, url: str
) -> LexborNode | None:
    if button is False:
        return None
    buttons = [node for node in controls if _kind(node) in _BUTTONS and not _disabled(node)]
    if not isinstance(button, str):
        return next(iter(buttons), None)
    matching = {node.mem_id for node in root.css(button)}
    pushed = next((node for node in controls if node.mem_id in matching), None)
    if pushed is None:
        raise InvalidInput(f"No button of the form on {url} matches {button[:_SHOWN]!r}.")
    return pushed


def _kind(node: LexborNode) -> str:
    if node.tag == "input":
        return (node.attributes.get("type") or "text").strip().lower()
    if node.tag == "button":
        kind = (node.attributes.get("type") or "submit").strip().lower()
        return kind if kind in _PUSHED_ONLY else "submit"
    return str(node.tag)


def _disabled(node: LexborNode) -> bool:
    if "disabled" in node.attributes:
        return True
    child, parent = node, node.parent
    while parent is not None:
        if parent.tag == "fieldset" and "disabled" in parent.attributes and not _in_first_legend(child, parent):
            return True
        child, parent = parent, parent.parent
    return False


def _in_first_legend(child: LexborNode, fieldset: LexborNode) -> bool:
    first = next((node for node in fieldset.iter(include_text=False) if node.tag == "legend"), None)
    return first is not None and child.mem_id == first.mem_id


def _entries(node: LexborNode, pushed: LexborNode | None, charset: str) -> Iterator[tuple[str, str]]:
    """The fields of one control."""
    attributes, kind = node.attributes, _kind(node)
    name = attributes.get("name") or ""
    if _disabled(node):
        return
    if kind in _PUSHED_ONLY:
        if pushed is None or pushed.mem_id != node.mem_id:
            return
        if kind == "image":
            prefix = f"{name}." if name else ""
            yield f"{prefix}x", "0"
            yield f"{prefix}y", "0"
            return
    if not name:
        return
    if kind == "select":
        yield from ((name, value) for value in _selected(node))
    elif kind in ("checkbox", "radio"):
        if "checked" in attributes:
            value = attributes.get("value")
            yield name, "on" if value is None else value
    elif kind == "textarea":
        yield name, node.text(deep=True)
    elif kind == "file":
        yield name, ""
    elif kind == "hidden" and name.lower() == "_charset_":
        yield name, charset
    else:
        yield name, attributes.get("value") or ""


def _selected(select: LexborNode) -> list[str]:
    options = select.css("option")
    chosen = [option for option in options if "selected" in option.attributes]
    if "multiple" not in select.attributes:
        # If several options are selected, the last one; if none is, the first that can be selected.
        chosen = chosen[-1:] or [option for option in options if not _off(option)][:1]
    return [_option_value(option) for option in chosen if not _off(option)]


def _off(option: LexborNode) -> bool:
    group = option.parent
    in_group = group is not None and group.tag == "optgroup" and "disabled" in group.attributes
    return "disabled" in option.attributes or in_group


def _option_value(option: LexborNode) -> str:
    value = option.attributes.get("value")
    if "value" in option.attributes:
        return value or ""
    return " ".join(option.text(deep=True).split())


def _charset(accepted: str, of_page: str) -> str:
    """The name of the encoding that the values are sent in. Forms of UTF-16 pages are sent in UTF-8."""
    for label in (*accepted.replace(",", " ").split(), of_page):
        try:
            name = codecs.lookup(label).name
            "".encode(name)
        except (LookupError, ValueError, TypeError, UnicodeError):
            continue
        return "utf-8" if name.startswith(("utf-16", "utf-32", "utf-7")) else name
    return "utf-8"


def _multipart(fields: Iterable[tuple[str, str]], files: frozenset[str], charset: str) -> tuple[bytes, str]:
    parts = []
    for name, value in fields:
        quoted = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        head = f'Content-Disposition: form-data; name="{quoted}"'
        if name in files:
            head += '; filename=""\r\nContent-Type: application/octet-stream'
        parts.append(f"{head}\r\n\r\n{value}\r\n".encode(charset, "xmlcharrefreplace"))
    # Derived from the content: the same form gives the same request, and no value contains the boundary.
    boundary = f"shoal-{hashlib.blake2s(b''.join(parts), digest_size=16).hexdigest()}"
    body = b"".join(b"--%s\r\n%s" % (boundary.encode(), part) for part in parts)
    return body + b"--%s--\r\n" % boundary.encode(), f"{_MULTIPART}; boundary={boundary}"


def _values(name: str, value: Any) -> list[tuple[str, str]]:
    values = value if isinstance(value, list | tuple) else (value,)
    return [(name, each if isinstance(each, str) else str(each)) for each in values if each is not None]


def _crlf(text: str) -> str:
    return _NEWLINE.sub("\r\n", text)
