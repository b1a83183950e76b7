"""Dates in sitemaps and feeds: W3C datetime (lastmod, Atom) and RFC 822 (RSS)."""

from __future__ import annotations

import datetime
import re
from email.utils import parsedate_to_datetime

# A longer text is not a date.
MAX_DATE = 64
_W3C = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,]\d+)?)?\s*(Z|[+-]\d\d:?\d\d)?)?)?)?\Z",
    re.IGNORECASE,
)


def moment(text: str) -> float:
    """Seconds since 1970; 0.0 for what is not a date. A date without a time is the start of that day, in UTC.

    >>> moment("1970-01-02"), moment("Thu, 01 Jan 1970 00:01:00 GMT"), moment("soon")
    (86400.0, 60.0, 0.0)
    """
    text = text.strip()
    if not text or len(text) > MAX_DATE or not text.isascii():
        return 0.0
    try:
        if found := _W3C.match(text):
            year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
            at = datetime.datetime(
                year, month or 1, day or 1, hour, minute, min(second, 59), tzinfo=datetime.UTC
            ).timestamp()  # fmt: skip
            return max(0.0, at - _offset_seconds(found[7]))
        at_ = parsedate_to_datetime(text)
        return max(0.0, (at_ if at_.tzinfo else at_.replace(tzinfo=datetime.UTC)).timestamp())
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0.0


def _offset_seconds(zone: str | None) -> int:
    if not zone or zone in "Zz":
        return 0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if zone[0] == "-" else seconds
