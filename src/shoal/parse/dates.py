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


def timestamp(text: str) -> float:
    """The seconds since 1970 of a date; 0.0 if the text is not a date. Without a time, the start of that day in UTC.

    >>> timestamp("1970-01-02"), timestamp("Thu, 01 Jan 1970 00:01:00 GMT"), timestamp("soon")
    (86400.0, 60.0, 0.0)
    """
    text = text.strip()
    if not text or len(text) > MAX_DATE or not text.isascii():
        return 0.0
    try:
        if match := _W3C.match(text):
            year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
            at = datetime.datetime(
                year, month or 1, day or 1, hour, minute, min(second, 59), tzinfo=datetime.UTC
            ).timestamp()  # fmt: skip
            return max(0.0, at - _offset_seconds(match[7]))
        date = parsedate_to_datetime(text)
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=datetime.UTC)).timestamp())
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0.0


def _offset_seconds(zone: str | None) -> int:
    if not zone or zone in "Zz":
        return 0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if zone[0] == "-" else seconds
