"""The delay between two requests to a host, and the meaning of a Retry-After header.

Owns the numbers, not the waiting: the delay counts from the end of a request, and the frontier enforces it for all
machines.
"""

from __future__ import annotations

# The longest delay that a slow response can cause; a configured delay is never reduced.
MAX_ADAPTIVE_SECONDS = 300.0
MAX_RETRY_AFTER_SECONDS = 86_400.0
# The longest HTTP date has 33 characters, "Wednesday, 09-Nov-94 08:49:37 GMT".
_MAX_DATE_CHARACTERS = 64


def delay_seconds(
    *,
    configured: float,
    crawl_delay: float = 0.0,
    response_seconds: float = 0.0,
    factor: float = 1.0,
    most: float = MAX_ADAPTIVE_SECONDS,
) -> float:
    """The largest of the configured delay, the Crawl-delay of robots.txt, and the response time times a factor.

    `most` bounds the last two, so that one slow response does not stop a host for a day. It never lowers the
    configured delay.
    """
    # After a clock step, times can be negative, and 0 * inf is nan; max() with 0 as first argument drops both.
    adaptive = max(0.0, factor * response_seconds)
    return max(configured, min(most, max(0.0, crawl_delay, adaptive)))


def retry_after_seconds(value: str | None, *, now: float) -> float | None:
    """The seconds of a Retry-After header: a number or an HTTP date (RFC 9110 10.2.3), from 0 to a day.

    A date in the past is 0. None if the header is absent or invalid.
    `now` is seconds since 1970.
    """
    if value is None:
        return None
    text = value.strip(" \t")
    if text.isascii() and text.isdigit():
        # int() refuses thousands of digits; more than eight are more than a day in any case.
        digits = text.lstrip("0") or "0"
        return MAX_RETRY_AFTER_SECONDS if len(digits) > 8 else min(float(digits), MAX_RETRY_AFTER_SECONDS)
    when = http_date(text)
    return None if when is None else min(max(0.0, when - now), MAX_RETRY_AFTER_SECONDS)


def requested_pause_seconds(status: int, retry_after: str | None, *, now: float) -> float | None:
    """Retry-After if it applies to the host: with 429 and 503. With any other status it applies to one page."""
    return retry_after_seconds(retry_after, now=now) if status in (429, 503) else None


def http_date(text: str) -> float | None:
    """Any of the three forms of RFC 9110 5.6.7, in seconds since 1970."""
    if len(text) > _MAX_DATE_CHARACTERS or not text.isascii():
        return None
    # Imported here, because it loads many modules and few hosts send a date that is parsed.
    import calendar
    from email.utils import parsedate_tz

    try:
        parsed = parsedate_tz(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if parsed is None:
        return None
    year, month, day, hour, minute, second = parsed[:6]
    # The grammar allows 60, a leap second.
    if not (1900 <= year <= 9999 and 1 <= month <= 12 and 0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 60):
        return None
    if not 1 <= day <= calendar.monthrange(year, month)[1]:
        return None
    # The asctime form has no zone: HTTP dates are in GMT, whatever the machine's time zone is.
    return calendar.timegm((year, month, day, hour, minute, second)) - (parsed[9] or 0)
