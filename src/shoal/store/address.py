"""The address of the store: parses store URLs and builds the TLS context.

It opens no connection.
"""

from __future__ import annotations

import re
import ssl
from urllib.parse import parse_qsl, unquote

import msgspec

from shoal.errors import SettingsError
from shoal.settings.secrets import masked

_KINDS = {
    "redis": ("standalone", False),
    "rediss": ("standalone", True),
    "valkey": ("standalone", False),
    "valkeys": ("standalone", True),
    "unix": ("standalone", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_PORTS = {"standalone": 6379, "sentinel": 26379, "cluster": 6379}
_TLS_PARAMETERS = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
_SENTINEL_PARAMETERS = {"sentinel_username", "sentinel_password"}


class Endpoint(msgspec.Struct, frozen=True):
    """An address to connect to: a host and port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Credentials(msgspec.Struct, frozen=True):
    username: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.username!r})"

    def command(self) -> tuple[str, ...] | None:
        """The AUTH command, or None without credentials."""
        if not self.password and not self.username:
            return None
        return ("AUTH", self.username, self.password) if self.username else ("AUTH", self.password)


class StoreAddress(msgspec.Struct, frozen=True):
    """A parsed store URL. `shown` is the URL with every password masked: the only form to print."""

    kind: str
    shown: str
    endpoints: tuple[Endpoint, ...]
    credentials: Credentials = Credentials()
    sentinel_credentials: Credentials = Credentials()
    service: str = ""
    db: int = 0
    tls: ssl.SSLContext | None = None

    def at(self, endpoint: Endpoint) -> StoreAddress:
        """The same access rights on another endpoint (a cluster node, the primary a sentinel named)."""
        return msgspec.structs.replace(self, endpoints=(endpoint,))


def parse_address(url: str) -> StoreAddress:
    """Parse a store URL. The message of a SettingsError contains no passwords."""
    scheme, _, rest = url.partition("://")
    shown = masked(url)
    if not rest or scheme not in _KINDS:
        known = ", ".join(f"{name}://" for name in _KINDS if not name.startswith("valkey"))
        raise SettingsError(f"The store URL {shown!r} has an unsupported scheme; use one of {known}.")
    kind, encrypted = _KINDS[scheme]
    # Not urlsplit: some versions of Python refuse several hosts when one of them is an IPv6 address.
    before, _, query_text = rest.partition("?")
    netloc, slash, path_text = before.partition("/")
    try:
        query = dict(parse_qsl(query_text, keep_blank_values=True, strict_parsing=bool(query_text)))
    except ValueError as error:
        raise SettingsError(f"The store URL {shown!r} is invalid; check it for stray characters.") from error
    user, at, hosts = netloc.rpartition("@")
    name, _, password = user.partition(":") if at else ("", "", "")
    credentials = Credentials(
        unquote(name) or query.pop("username", ""), unquote(password) or query.pop("password", "")
    )
    path = unquote(slash + path_text)
    if scheme == "unix":
        if not path.strip("/"):
            raise SettingsError(f"The store URL {shown!r} has no socket path; write unix:///path/to/socket.")
        endpoints: tuple[Endpoint, ...] = (Endpoint(path=path),)
        db_text, service = "", ""
    else:
        endpoints = tuple(_endpoint(text, _PORTS[kind], shown) for text in hosts.split(","))
        if kind == "standalone" and len(endpoints) > 1:
            raise SettingsError(
                f"The store URL {shown!r} names several servers; use redis+sentinel:// or redis+cluster://."
            )
        service, db_text = "", path.strip("/")
        if kind == "sentinel":
            service, _, db_text = db_text.partition("/")
            if not service:
                raise SettingsError(
                    f"The store URL {shown!r} has no service name; write redis+sentinel://host:port/service."
                )
    db = _db(query.pop("db", "") or db_text, kind, shown)
    sentinel_credentials = Credentials(query.pop("sentinel_username", ""), query.pop("sentinel_password", ""))
    tls_options = {name: query.pop(name) for name in _TLS_PARAMETERS & query.keys()}
    if query:
        allowed = sorted({"db"} | (_TLS_PARAMETERS if encrypted else set()) | _SENTINEL_PARAMETERS)
        raise SettingsError(
            f"The store URL {shown!r} has the unknown parameter {min(query)!r}; use {', '.join(allowed)}."
        )
    if tls_options and not encrypted:
        raise SettingsError(f"The store URL {shown!r} sets {min(tls_options)} without TLS; write the scheme as rediss.")
    return StoreAddress(
        kind=kind,
        shown=shown,
        endpoints=endpoints,
        credentials=credentials,
        sentinel_credentials=sentinel_credentials,
        service=service,
        db=db,
        tls=_tls(tls_options, shown) if encrypted else None,
    )


def _endpoint(text: str, default_port: int, shown: str) -> Endpoint:
    host, port_text = text, ""
    if text.startswith("["):
        host, _, tail = text[1:].partition("]")
        port_text = tail.removeprefix(":")
    elif ":" in text:
        host, _, port_text = text.rpartition(":")
    # int() refuses thousands of digits.
    if port_text and not (re.fullmatch("[0-9]{1,5}", port_text) and 0 < int(port_text) < 65536):
        raise SettingsError(f"The store URL {shown!r} has an invalid port; write a number from 1 to 65535.")
    return Endpoint(host or "localhost", int(port_text) if port_text else default_port)


def _db(text: str, kind: str, shown: str) -> int:
    if not text:
        return 0
    if not re.fullmatch("[0-9]{1,9}", text):
        raise SettingsError(f"The store URL {shown!r} has an invalid database number; write a number such as 0.")
    if kind == "cluster" and int(text):
        raise SettingsError(f"The store URL {shown!r} names database {text}; a cluster has only database 0.")
    return int(text)


def _tls(options: dict[str, str], shown: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca_certs") or None)
        if options.get("ssl_certfile"):
            context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile") or None)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or error
        raise SettingsError(
            f"The certificate files of the store URL {shown!r} cannot be loaded ({reason}); check ssl_ca_certs, "
            "ssl_certfile and ssl_keyfile."
        ) from error
    if options.get("ssl_check_hostname", "true").lower() in ("false", "0", "no"):
        context.check_hostname = False
    required = options.get("ssl_cert_reqs", "required").lower()
    if required == "none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif required != "required":
        raise SettingsError(f"The store URL {shown!r} has an invalid ssl_cert_reqs; write required or none.")
    return context
