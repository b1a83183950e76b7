"""URIs of outputs and of body stores: the scheme, and paths on this machine."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit

from shoal.errors import SinkRefused
from shoal.settings import masked

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.S)
_LONGEST_SHOWN = 200


def shown_uri(uri: str) -> str:
    """A URI for messages: in quotes, without passwords, cut if it is long."""
    text = masked(uri)
    return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "...")


def split_scheme(uri: str) -> tuple[str, str]:
    """The scheme in lower case, '' if there is none, and the rest."""
    match = _SCHEME.fullmatch(uri)
    return (match[1].lower(), match[2]) if match else ("", uri)


def split_server_uri(uri: str) -> tuple[SplitResult, dict[str, str]]:
    """The parts of a server's URI, and its options. ValueError if it is malformed."""
    parts = urlsplit(uri)
    _ = parts.port  # a ValueError if it is not a number
    return parts, dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))


def local_path(path: str, what: str) -> Path:
    """The absolute path. `what` names the output in the message. Symbolic links are resolved: a file has one name."""
    plain = Path(re.sub(r"\A/+", "/", path))
    try:
        plain.stat()
    except OSError as error:
        # Since Python 3.13, `resolve` does not report a loop.
        if error.errno == errno.ELOOP:
            raise SinkRefused(f"{what} cannot be reached: its path is a loop of symbolic links.") from None
    return plain.resolve()


def names_server(path: str) -> bool:
    """Whether a path starts with the name of a server, e.g. //host/pages.db."""
    return re.match(r"//[^/]", path) is not None
