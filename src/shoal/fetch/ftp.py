"""FTP in terms of HTTP: the status that a reply corresponds to, and the content type of a file.

Owns only the translation; libcurl implements the protocol. A URL that ends in a slash is a directory, and its body is a
listing, by MLSD if the server supports it, otherwise by LIST. Data comes only from the address of the control
connection, regardless of the address that the server sends.
"""

from __future__ import annotations

import mimetypes

import pycurl  # type: ignore[import-untyped]

from shoal.errors import FetchError
from shoal.politeness.backoff import Fault
from shoal.settings import masked

LISTING = "text/ftp-dir-listing"

# Errors of libcurl that are caused by a reply of the server; for any other error, the last reply means nothing.
_REPLIED = frozenset(
    (
        pycurl.E_REMOTE_ACCESS_DENIED,
        pycurl.E_REMOTE_FILE_NOT_FOUND,
        pycurl.E_LOGIN_DENIED,
        pycurl.E_FTP_COULDNT_RETR_FILE,
        pycurl.E_FTP_WEIRD_SERVER_REPLY,
        pycurl.E_FTP_WEIRD_PASS_REPLY,
    )
)
_TIMED_OUT = pycurl.E_OPERATION_TIMEDOUT
# RFC 959 4.2.2.
_STATUSES = {550: 404, 551: 404, 553: 404, 530: 401, 331: 401, 332: 401, 532: 401, 421: 503, 450: 503, 451: 503}
_UNKNOWN_COMMAND = frozenset((500, 501, 502, 504))


def check(url: str, method: str, body: bytes, proxy: str) -> None:
    """Raise FetchError for a request that FTP does not support."""
    if method != "GET" or body:
        explanation = f"FTP does not support {method[:20]}"
    elif proxy:
        explanation = "Shoal does not send FTP through a proxy"
    else:
        return
    problem = f"{masked(url)} is not fetched: {explanation}."
    raise FetchError(problem, fault=Fault.ABORTED, reason="not supported over FTP")


def status_of(error: int, curl: pycurl.Curl) -> int:
    """The HTTP status that corresponds to a refusal; 0 if there is none."""
    reply = curl.getinfo(pycurl.RESPONSE_CODE)
    # libcurl treats every 421 as the end of an idle connection, and reports a timeout.
    return _STATUSES.get(reply, 0) if error in _REPLIED or (error == _TIMED_OUT and reply == 421) else 0


def knows_no_facts(error: int, curl: pycurl.Curl) -> bool:
    """Whether the server does not support MLSD."""
    return error in _REPLIED and curl.getinfo(pycurl.RESPONSE_CODE) in _UNKNOWN_COMMAND


def headers_of(url: str, status: int) -> tuple[tuple[str, str], ...]:
    if status != 200:
        return ()
    kind = LISTING if url.endswith("/") else mimetypes.guess_type(url.partition("?")[0])[0]
    return (("content-type", kind),) if kind else ()
