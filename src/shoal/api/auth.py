"""Tokens and roles: who may call the API. A token may be bound to one application.

Owns the format of `[tokens]`. The settings contain the SHA-256 of a token only, so a reader of the settings cannot use
the API. A token has 256 random bits, so a plain hash is enough.
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
    """Each role includes the ones before it."""

    READ = 1
    SUBMIT = 2
    ADMIN = 3


class Caller(msgspec.Struct, frozen=True):
    """The sender of a request. With an `app`, it can access only crawls of that application, and not the fleet."""

    name: str
    role: Role
    app: str = ""


# Every request has this caller when no tokens are configured.
LOCAL_CALLER = Caller("local (no authentication)", Role.ADMIN)


class Tokens:
    """The tokens of the settings. Without any, every client that can connect has the role admin."""

    def __init__(self, table: Mapping[str, str]) -> None:
        self._callers: list[tuple[bytes, Caller]] = []
        for name, line in table.items():
            parts = _LINE.match(line.strip())
            if parts is None:
                raise SettingsError(
                    f"tokens.{name} must be `ROLE sha256:<64 hex digits>` or `ROLE:APP sha256:...`, where ROLE is "
                    "read, submit or admin. Create one with `shoal serve --make-token ROLE`."
                )
            self._callers.append((bytes.fromhex(parts[3]), Caller(name, Role[parts[1].upper()], parts[2] or "")))

    def __bool__(self) -> bool:
        return bool(self._callers)

    def caller(self, authorization: str) -> Caller | None:
        """The caller with this token, None for an invalid one. Compares with every token in constant time."""
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token:
            return None
        digest = _digest(token)
        match = None
        for known, caller in self._callers:
            if hmac.compare_digest(known, digest):
                match = caller
        return match

    def mark(self, token: str) -> str:
        """Return the value that a session of this token keeps; '' for an invalid token.

        The token cannot be computed from the value.
        """
        return _mark(_digest(token)) if token.strip() and self.caller(f"Bearer {token}") is not None else ""

    def marked(self, mark: str) -> Caller | None:
        """The caller whose token has this mark; None if the token is no longer in the settings."""
        return next((caller for known, caller in self._callers if hmac.compare_digest(_mark(known), mark)), None)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.strip().encode(errors="surrogateescape")).digest()


def _mark(digest: bytes) -> str:
    return hashlib.sha256(b"session " + digest).hexdigest()


def create_token(role: str) -> tuple[str, str]:
    """A new token for `role` or `role:app`, and its line for [tokens]."""
    token = PREFIX + secrets.token_urlsafe(32)
    line = f"{role} sha256:{hashlib.sha256(token.encode()).hexdigest()}"
    if not _LINE.match(line):
        raise SettingsError(f"Invalid role {role[:80]!r}: use read, submit or admin, optionally followed by :APP.")
    return token, line


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only. The only such name is localhost."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
