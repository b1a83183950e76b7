"""Secrets: the one function that removes passwords and tokens from text for a message or a log."""

from __future__ import annotations

import re

_PARAMETER = re.compile(r"(?i)((?:password|passwd|secret|token)=)[^&\s]*")


def masked(text: str) -> str:
    """`text` without passwords and tokens.

    Everything before the last @ except the scheme is removed, including the user name: a password with an unescaped /
    or @ does not parse, and such URLs are the ones in error messages. Some services accept a token as the user name.
    """
    before, at, after = text.rpartition("@")
    if at:
        scheme, sep, _ = before.partition("://")
        text = f"{scheme}://***@{after}" if sep else f"***@{after}"
    return _PARAMETER.sub(r"\1***", text)
