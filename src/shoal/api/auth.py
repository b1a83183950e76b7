"""Who may do what: tokens with a role, perhaps bound to one application.

Owns the reading of `[tokens]` and the judging of one request. Of a token only its SHA-256 is kept: whoever reads the
settings cannot use the API. Tokens are 256 random bits, so that a plain hash is enough.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping
from enum import IntEnum

import msgspec

from shoal.errors import SettingsError

_LINE = re.compile(r"(read|submit|admin)(?::([A-Za-z0-9_.@-]{1,64}))?\s+sha256:([0-9a-f]{64})\Z")
PREFIX = "shoal_"


class Role(IntEnum):
    """Each may do what those before it may."""

    READ = 1
    SUBMIT = 2
    ADMIN = 3


class Caller(msgspec.Struct, frozen=True):
    """Who asks. With an `app`, only its crawls are seen and made, and nothing of the fleet."""

    name: str
    role: Role
    app: str = ""


OWNER = Caller("owner of this machine", Role.ADMIN)


class Tokens:
    """All tokens of the settings; without any, whoever reaches the server may do everything."""

    def __init__(self, table: Mapping[str, str]) -> None:
        self._callers: list[tuple[bytes, Caller]] = []
        for name, line in table.items():
            found = _LINE.match(line.strip())
            if found is None:
                raise SettingsError(
                    f"tokens.{name} is not `role sha256:<64 hex digits>` with role read, submit or admin, perhaps with "
                    ":app; let `shoal serve --make-token ROLE` write the line."
                )
            self._callers.append((bytes.fromhex(found[3]), Caller(name, Role[found[1].upper()], found[2] or "")))

    def __bool__(self) -> bool:
        return bool(self._callers)

    def caller(self, authorization: str) -> Caller | None:
        """Whose token this is, None when it is nobody's. All are compared, each in the same time."""
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token:
            return None
        digest = hashlib.sha256(token.strip().encode(errors="surrogateescape")).digest()
        found = None
        for known, caller in self._callers:
            if hmac.compare_digest(known, digest):
                found = caller
        return found


def make(role: str) -> tuple[str, str]:
    """A new token for `role` or `role:app`, and its line for the settings."""
    token = PREFIX + secrets.token_urlsafe(32)
    line = f"{role} sha256:{hashlib.sha256(token.encode()).hexdigest()}"
    if not _LINE.match(line):
        raise SettingsError(f"{role[:80]!r} is not a role: write read, submit or admin, perhaps with :app behind it.")
    return token, line


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address; of a name only localhost is known to mean that."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
