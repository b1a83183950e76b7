"""Cookies by RFC 6265: which ones a response sets, and which ones a request sends. Pure; time is an argument.

Owns the stored form of a jar. A jar has the cookies of one registrable domain, or of one host: no cookie is valid for
more than that, so a jar is all that a request needs. A cookie for a public suffix such as co.uk is not accepted.
"""

from __future__ import annotations

import calendar
import ipaddress
import re
from collections.abc import Callable, Iterable

import msgspec

from shoal.urls.canonical import Target
from shoal.urls.scope import registrable_domain

# Limits of RFC 6265bis 5.6 and 5.7; browsers have the same. A jar is read and written as a whole, so it has fewer.
MOST_COOKIES = 100
MOST_BYTES = 32_768
_MOST_SET = 100
_MOST_PAIR = 4096
_MOST_ATTRIBUTE = 1024
# Browsers keep no cookie for longer (RFC 6265bis 5.5).
_LONGEST_SECONDS = 400 * 86400
_LATEST = 253_402_300_800  # year 10000
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# RFC 6265 5.1.1.
_DELIMITER = re.compile(r"[\x09\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+")
_TIME = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\D.*)?", re.ASCII | re.DOTALL)
_DAY = re.compile(r"(\d{1,2})(?:\D.*)?", re.ASCII | re.DOTALL)
_YEAR = re.compile(r"(\d{2,4})(?:\D.*)?", re.ASCII | re.DOTALL)


class Cookie(msgspec.Struct, frozen=True, array_like=True):
    name: str
    value: str
    # A host name or address without a port.
    domain: str
    # Sent only to `domain` itself, not to hosts below it.
    host_only: bool
    path: str
    secure: bool
    # Seconds since 1970; 0 for a cookie that lasts as long as its crawl.
    expires_at: float
    created_at: float

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.name, self.domain, self.path)


Jar = tuple[Cookie, ...]
Change = Callable[[Jar], Jar]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Cookie, ...]).decode


def pack(jar: Jar) -> bytes:
    return _encode(jar)


def unpack(data: bytes) -> Jar:
    """Decode what `pack` returned. A jar in any other form is empty: nothing in the store is trusted."""
    try:
        jar = _decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return ()
    return tuple(cookie for cookie in jar if _sendable(cookie.name + cookie.value))


def sent(jar: Jar, target: Target, now: float) -> str:
    """The value of the Cookie header of a request; '' for none."""
    host, path, secure = _name(target), _path(target), target.scheme == "https"
    chosen = [
        cookie
        for cookie in jar
        if (not cookie.expires_at or cookie.expires_at > now)
        and (secure or not cookie.secure)
        and (cookie.domain == host or (not cookie.host_only and _below(host, cookie.domain)))
        and _path_matches(path, cookie.path)
    ]
    # RFC 6265 5.4: longer paths first, then older cookies.
    chosen.sort(key=lambda cookie: (-len(cookie.path), cookie.created_at))
    return "; ".join(f"{cookie.name}={cookie.value}" if cookie.name else cookie.value for cookie in chosen)


def received(jar: Jar, target: Target, headers: Iterable[str], now: float, *, host_only: bool = False) -> Jar:
    """The jar after a response with these Set-Cookie headers; the same object if nothing has changed.

    With `host_only`, a cookie goes back only to the host that set it, whatever its Domain attribute says.
    """
    new = [
        cookie
        for header in list(headers)[:_MOST_SET]
        if (cookie := _parsed(header, target, now, host_only)) is not None
    ]
    if target.scheme != "https":
        # RFC 6265bis 5.7 step 16: a plain response does not replace a cookie of https.
        secure = {(cookie.name, cookie.domain) for cookie in jar if cookie.secure}
        new = [cookie for cookie in new if (cookie.name, cookie.domain) not in secure]
    return _put(jar, new, now)


def given(jar: Jar, target: Target, cookies: dict[str, str], now: float) -> Jar:
    """The jar with cookies that a spider gives for the host of a URL."""
    host = _name(target)
    return _put(jar, [Cookie(name, value, host, True, "/", False, 0.0, now) for name, value in cookies.items()], now)


def _put(jar: Jar, new: list[Cookie], now: float) -> Jar:
    if not new:
        return jar
    kept = {cookie.key: cookie for cookie in jar if not cookie.expires_at or cookie.expires_at > now}
    for cookie in new:
        old = kept.get(cookie.key)
        if cookie.expires_at and cookie.expires_at <= now:
            kept.pop(cookie.key, None)
        elif old is None or _content(old) != _content(cookie):
            # RFC 6265 5.3 step 11.3: a cookie that is set again keeps its age.
            kept[cookie.key] = cookie if old is None else msgspec.structs.replace(cookie, created_at=old.created_at)
    changed = tuple(kept.values())
    if changed == jar:
        return jar
    while len(changed) > MOST_COOKIES or len(_encode(changed)) > MOST_BYTES:
        oldest = min(range(len(changed)), key=lambda index: changed[index].created_at)
        changed = changed[:oldest] + changed[oldest + 1 :]
    return changed


def _content(cookie: Cookie) -> tuple[object, ...]:
    """The values that are compared to see whether a cookie has changed.

    The expiry is in minutes: a jar whose cookie is extended by every page is written once a minute.
    """
    return (cookie.value, cookie.host_only, cookie.secure, int(cookie.expires_at / 60))


def _parsed(header: str, target: Target, now: float, host_only: bool) -> Cookie | None:
    """The cookie of a Set-Cookie header by RFC 6265 5.2 and 5.3; None if it is not accepted."""
    if _CONTROL.search(header):
        return None
    pair, *attributes = header.split(";")
    before, mark, after = pair.partition("=")
    name, value = (before.strip(" \t"), after.strip(" \t")) if mark else ("", before.strip(" \t"))
    # A cookie may lack its name, but not both its name and its value.
    if (not value and not name) or len(name) + len(value) > _MOST_PAIR or not _sendable(name + value):
        return None
    values: dict[str, str] = {}
    for attribute in attributes:
        key, _, text = attribute.partition("=")
        if len(text) <= _MOST_ATTRIBUTE:
            values[key.strip(" \t").lower()] = text.strip(" \t")
    host, secure_origin = _name(target), target.scheme == "https"
    domain = values.get("domain", "").removeprefix(".").lower()
    if domain and domain != host:
        if not _below(host, domain):
            return None
        if host_only:
            domain = ""
        # A public suffix, or a single label: the cookie would be sent to many sites.
        elif not registrable_domain(domain):
            return None
    path = values.get("path", "")
    path = path if path.startswith("/") else _default_path(target)
    secure = "secure" in values
    if secure and not secure_origin:
        return None
    if name.lower().startswith("__secure-") and not secure:
        return None
    if name.lower().startswith("__host-") and (not secure or values.get("domain") or path != "/"):
        return None
    return Cookie(
        name, value, domain or host, not domain or host_only or not registrable_domain(domain), path, secure,
        _expiry(values, now), now,
    )  # fmt: skip


def _expiry(attributes: dict[str, str], now: float) -> float:
    age = attributes.get("max-age", "")
    if re.fullmatch(r"-?[0-9]+", age):
        seconds = int(age) if len(age) < 12 else (_LONGEST_SECONDS if age[0] != "-" else 0)
        return now + min(seconds, _LONGEST_SECONDS) if seconds > 0 else 1.0
    expires = _date(attributes["expires"]) if "expires" in attributes else None
    return min(max(expires, 1.0), now + _LONGEST_SECONDS) if expires is not None else 0.0


def _date(text: str) -> float | None:
    """The time of a date by RFC 6265 5.1.1, in seconds since 1970; None for any other text."""
    time = day = month = year = None
    for token in _DELIMITER.split(text):
        if time is None and (match := _TIME.fullmatch(token)):
            time = tuple(map(int, match.groups()))
        elif day is None and (match := _DAY.fullmatch(token)):
            day = int(match[1])
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS.index(token[:3].lower()) + 1
        elif year is None and (match := _YEAR.fullmatch(token)):
            year = int(match[1])
    if time is None or day is None or month is None or year is None:
        return None
    year += 1900 if 70 <= year <= 99 else 2000 if year <= 69 else 0
    hour, minute, second = time
    if not 1 <= day <= 31 or year < 1601 or hour > 23 or minute > 59 or second > 59:
        return None
    if day > calendar.monthrange(year, month)[1]:
        return None
    return float(min(calendar.timegm((year, month, day, hour, minute, second)), _LATEST))


def _sendable(text: str) -> bool:
    return all(character >= " " and character not in ";\x7f" for character in text)


def _name(target: Target) -> str:
    """The host of a URL without its port: cookies are not bound to ports (RFC 6265 8.5)."""
    host = target.host
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _path(target: Target) -> str:
    return target.path.partition("?")[0] or "/"


def _default_path(target: Target) -> str:
    return _path(target).rpartition("/")[0] or "/"


def _below(host: str, domain: str) -> bool:
    return host.endswith(f".{domain}") and not _is_address(host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _path_matches(path: str, of_cookie: str) -> bool:
    if path == of_cookie:
        return True
    return path.startswith(of_cookie) and (of_cookie.endswith("/") or path[len(of_cookie)] == "/")
