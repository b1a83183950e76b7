"""Who is signed in: sessions of browsers, and the proof that a change comes from a page of the dashboard.

A session is a random id in a cookie that scripts cannot read and that other sites' pages do not send. It is kept in
the store, ends after twelve hours without a request, and is valid for the dashboard only: the API takes a token. It
belongs to a token, not to a name: a session ends when its token is removed from the settings.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from starlette.requests import Request
from starlette.responses import Response

from shoal.api.auth import LOCAL_CALLER, Caller, Tokens
from shoal.api.problem_details import RequestRefused
from shoal.errors import ShoalError
from shoal.frontier.session_table import SessionTable

COOKIE = "shoal_session"
# A session that ended on another server ends here after this time at the latest.
FRESH_SECONDS = 10.0
_MOST_KNOWN = 10_000


class Sessions:
    """Times are passed in, from a monotonic clock."""

    def __init__(self, tokens: Tokens, table: SessionTable) -> None:
        self._tokens = tokens
        self._table = table
        # Key of the proof for users who need no session.
        self._secret = secrets.token_bytes(32)
        # By id: the caller, and when the store confirmed it.
        self._known: dict[str, tuple[Caller, float]] = {}

    @property
    def required(self) -> bool:
        """Whether users must sign in. Without tokens, only this machine is served."""
        return bool(self._tokens)

    async def sign_in(self, token: str) -> str:
        """The id of a new session, '' for a wrong token."""
        mark = self._tokens.mark(token)
        if not mark:
            return ""
        session = secrets.token_urlsafe(32)
        await self._table.begin(session, mark)
        return session

    async def sign_out(self, session: str) -> None:
        self._known.pop(session, None)
        if session:
            await self._table.end(session)

    def is_fresh(self, session: str, now: float) -> bool:
        """Whether `caller` returns without a call to the store."""
        if not self.required or not session:
            return True
        _, confirmed = self._known.get(session, (None, float("-inf")))
        return now - confirmed < FRESH_SECONDS

    async def caller(self, session: str, now: float) -> Caller | None:
        """Return the caller that has this session, None if it is unknown or has ended."""
        if self.is_fresh(session, now):
            return self.known(session)
        try:
            caller = self._tokens.marked(await self._table.owner(session))
        except ShoalError:
            # A page that is open stays open, and shows that the store is unavailable.
            if (known := self.known(session)) is not None:
                return known
            raise
        self._known.pop(session, None)
        if caller is not None:
            if len(self._known) >= _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[session] = (caller, now)
        return caller

    def known(self, session: str) -> Caller | None:
        """Return the caller that had this session when it was last looked up here."""
        return self._known.get(session, (None,))[0] if self.required else LOCAL_CALLER

    def proof(self, session: str) -> str:
        """Return the value that a form must contain: derived from the session, unknown to pages of other sites."""
        # Without tokens, the session may be any cookie that a page on another port has set.
        key = session.encode() if self.required and session else self._secret
        return hmac.new(key, b"shoal form", hashlib.sha256).hexdigest()

    def check_proof(self, request: Request, session: str, sent: str) -> None:
        """Refuse a change that does not come from a page of the dashboard."""
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise RequestRefused(403, "A page of another site cannot make changes.")
        if not hmac.compare_digest(self.proof(session).encode(), sent.encode()):
            raise RequestRefused(403, "This form has expired: open the page again and repeat the change.")


def session_of(request: Request) -> str:
    return request.cookies.get(COOKIE, "")[:200]


def set_cookie(request: Request, response: Response, session: str) -> None:
    """Set the session's cookie. Only the browser knows whether the page came over TLS: a proxy may terminate it."""
    secure = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
    response.set_cookie(COOKIE, session, path="/", httponly=True, samesite="strict", secure=secure)


def delete_cookie(response: Response) -> None:
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
