"""The meaning of libcurl's errors: one table from its codes to faults and short reasons.

The only exception that a server can cause is FetchError: a code that is not listed counts as a malformed response.
"""

from __future__ import annotations

import pycurl  # type: ignore[import-untyped]

from shoal.errors import FetchError
from shoal.politeness.backoff import Fault
from shoal.settings import masked

# Not named by pycurl.
_E_WEIRD_SERVER_REPLY = 8
_E_HTTP2 = 16
_E_HTTP2_STREAM = 92
_E_PROXY = 97
_E_TOO_LARGE = 100

_FAULTS: dict[int, tuple[Fault, str]] = {
    pycurl.E_UNSUPPORTED_PROTOCOL: (Fault.MALFORMED, "not http"),
    pycurl.E_URL_MALFORMAT: (Fault.ABORTED, "bad url"),
    pycurl.E_COULDNT_RESOLVE_PROXY: (Fault.PROXY, "proxy unresolved"),
    pycurl.E_COULDNT_RESOLVE_HOST: (Fault.UNRESOLVED, "unresolved"),
    pycurl.E_COULDNT_CONNECT: (Fault.REFUSED, "refused"),
    _E_WEIRD_SERVER_REPLY: (Fault.MALFORMED, "bad header"),
    _E_HTTP2: (Fault.MALFORMED, "http/2"),
    pycurl.E_PARTIAL_FILE: (Fault.TRUNCATED, "truncated"),
    pycurl.E_WRITE_ERROR: (Fault.MALFORMED, "bad coding"),
    pycurl.E_OPERATION_TIMEDOUT: (Fault.TIMED_OUT, "timed out"),
    pycurl.E_SSL_CONNECT_ERROR: (Fault.TLS, "tls"),
    pycurl.E_GOT_NOTHING: (Fault.RESET, "no answer"),
    pycurl.E_SEND_ERROR: (Fault.RESET, "reset"),
    pycurl.E_RECV_ERROR: (Fault.RESET, "reset"),
    pycurl.E_SSL_CERTPROBLEM: (Fault.TLS, "tls"),
    pycurl.E_SSL_CIPHER: (Fault.TLS, "tls"),
    pycurl.E_PEER_FAILED_VERIFICATION: (Fault.TLS, "tls"),
    pycurl.E_SSL_ISSUER_ERROR: (Fault.TLS, "tls"),
    pycurl.E_SSL_INVALIDCERTSTATUS: (Fault.TLS, "tls"),
    pycurl.E_SSL_CACERT_BADFILE: (Fault.TLS, "tls"),
    pycurl.E_BAD_CONTENT_ENCODING: (Fault.MALFORMED, "bad coding"),
    pycurl.E_FILESIZE_EXCEEDED: (Fault.TOO_LARGE, "too large"),
    _E_HTTP2_STREAM: (Fault.RESET, "http/2 stream"),
    _E_PROXY: (Fault.PROXY, "proxy"),
    _E_TOO_LARGE: (Fault.TOO_LARGE, "headers too large"),
}

# If a code has several meanings, the text of the error distinguishes them. Each text has a test that fails when libcurl
# changes it. If no text matches, the code's entry above is correct, but less precise.
_TEXTS: tuple[tuple[int, str, Fault, str], ...] = (
    (pycurl.E_BAD_CONTENT_ENCODING, "Unrecognized", Fault.MALFORMED, "unknown coding"),
    (pycurl.E_OPERATION_TIMEDOUT, "too slow", Fault.TIMED_OUT, "too slow"),
    (pycurl.E_RECV_ERROR, "chunk", Fault.MALFORMED, "bad chunk"),
    (pycurl.E_COULDNT_CONNECT, "CONNECT", Fault.REFUSED, "proxy"),
    (pycurl.E_COULDNT_CONNECT, "response 407", Fault.PROXY, "proxy requires a login"),
    (pycurl.E_RECV_ERROR, "eof while reading", Fault.TRUNCATED, "truncated"),
    (pycurl.E_RECV_ERROR, "response headers", Fault.TOO_LARGE, "headers too large"),
    (pycurl.E_SSL_CONNECT_ERROR, "reset by peer", Fault.RESET, "reset"),
    (_E_HTTP2_STREAM, "Violation", Fault.MALFORMED, "http/2"),
)

# X509_V_ERR_* of OpenSSL.
_CERTIFICATES = {
    9: "tls: certificate not yet valid",
    10: "tls: certificate expired",
    18: "tls: self-signed",
    19: "tls: unknown CA",
    20: "tls: unknown CA",
    21: "tls: unknown CA",
    23: "tls: certificate revoked",
    62: "tls: wrong name",
}


def fetch_error(url: str, code: int, text: str, curl: pycurl.Curl, *, proxied: bool = False) -> FetchError:
    """The error of a transfer that ended with this code."""
    fault, reason = _FAULTS.get(code, (Fault.MALFORMED, "malformed"))
    if proxied and code == pycurl.E_COULDNT_CONNECT:
        # Only the proxy is connected to. If it cannot reach a host, it sends a response, whose text is matched below.
        fault, reason = Fault.PROXY, "proxy refused"
    for only, part, other, name in _TEXTS:
        if code == only and part in text:
            fault, reason = other, name
    if code == _E_HTTP2 and not text:
        # No frame was invalid: the connection ended.
        fault, reason = Fault.RESET, "reset"
    if code == pycurl.E_PEER_FAILED_VERIFICATION:
        reason = _CERTIFICATES.get(curl.getinfo(pycurl.SSL_VERIFYRESULT), "tls")
        # libcurl compares the name, after OpenSSL has accepted the chain.
        if reason == "tls" and "subject name" in text:
            reason = "tls: wrong name"
    return FetchError(f"{masked(url)} was not fetched: {text or reason}.", fault=fault, reason=reason)
