"""Crawler traps: which parameters are removed from links, and which links are not followed.

Owns the rules that recognize a trap by the spelling of its URLs, and the memory of a crawl that the other rules need:
parameters in another order, endless subdomains. Pure except for that memory, which is bounded; time is an argument. The
rules miss some traps rather than skip a real page: limits on depth and on pages per host end the crawl of such traps.
An ordinary link costs about a microsecond.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable

from shoal.urls.canonical import Target
from shoal.urls.scope import domain_of

# All reasons. The store counts them by their text.
LENGTH = "trap: length"
DEPTH = "trap: depth"
REPETITION = "trap: repetition"
CALENDAR = "trap: calendar"
PARAMETERS = "trap: parameters"
PERMUTATION = "trap: permutation"
SUBDOMAINS = "trap: subdomains"
LINKS = "trap: links per page"

MAX_LENGTH = 2000
MAX_SEGMENTS = 20
# How often a run of segments may repeat in a row, and how often one segment may occur anywhere in the path.
MAX_RUNS = 2
MAX_SAME_SEGMENTS = 4
MAX_PARAMETERS = 30
MAX_SAME_PARAMETERS = 4
MAX_HOSTS = 1000
FIRST_YEAR = 1990
YEARS_AHEAD = 2
_REMEMBERED = 100_000
_YEAR_SECONDS = 365.2425 * 86400
# The slashes of http://.
_SLASHES = 2

# A year, perhaps with its month: 2031, 2031-05, 2031/5, 203105, 20310517. Only from 1800 to 2199, where an endless
# calendar begins: other numbers of four digits are ids. The years of nearly all dates, 1990 to 2028, are left out,
# because this pattern is tried on every link.
_YEAR = re.compile(
    r"[/=_](18[0-9]{2}|19[0-8][0-9]|20(?:29|[3-9][0-9])|21[0-9]{2})"
    r"(?:([-/])(?:(0[1-9]|1[0-2])|([1-9]))(?:\2(?:0?[1-9]|[12][0-9]|3[01]))?|((?:0[1-9]|1[0-2])(?:[0-3][0-9])?))?"
    r"(?=[/&?;T#]|$)"
)
# Whole words of calendars: `holiday` does not match `day`. The words of the inner group also occur in URLs of pages
# about the time before the web.
_WORD = re.compile(
    r"[/?&_.=-](?:(?:mini)?cal(?:endar|endars)?|kalender|calendrier|calendario|agenda|schedule|bookings?|availability"
    r"|(events?|months?|years?|weeks?|days?|dates?|jahr|monat|datum|mois|annee|fecha|mes))(?=[/?&_.=-]|$)",
    re.IGNORECASE,
)


class Permutations:
    """Known queries, regardless of the order of their parameters: only the first order that was found is visited.

    Sorting the parameters in the URL would be simpler, but wrong for the few servers that depend on their order or
    have signed them.
    """

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def verdict(self, url: str) -> str:
        path, _, query = url.partition("?")
        key, url_hash = hash((path, *sorted(query.split("&")))), hash(url)
        known = self._young.get(key)
        if known is None:
            known = self._old.get(key)
        if known is None:
            if len(self._young) >= self._most:
                self._old, self._young = self._young, {}
            self._young[key] = url_hash
            return ""
        return "" if known == url_hash else PERMUTATION

    def clear(self) -> None:
        self._young, self._old = {}, {}


class DomainHosts:
    """Known hosts of a crawl, by domain: beyond `most` hosts of one domain, no further hosts are visited.

    For crawls that visit several hosts. Each worker counts for itself.
    """

    def __init__(self, most: int = MAX_HOSTS) -> None:
        self._most = most
        self._known: set[str] = set()
        self._of_domain: dict[str, int] = {}

    def verdict(self, host: str) -> str:
        if host in self._known:
            return ""
        domain = domain_of(host)
        count = self._of_domain.get(domain, 0)
        if count >= self._most:
            return SUBDOMAINS
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
            self._of_domain.clear()
            count = 0
        self._known.add(host)
        self._of_domain[domain] = count + 1
        return ""


class Traps:
    """The rules of one crawl. `drop_parameters` are names, with a * at the end for any ending; case does not matter."""

    def __init__(self, *, drop_parameters: Iterable[str] = ()) -> None:
        names = "|".join(
            re.escape(name.removesuffix("*")) + ("[^=&;/?]*" if name.endswith("*") else "")
            for name in drop_parameters
            if name.strip("*")
        )
        # Without names, a pattern that never matches.
        names = names or "(?!)"
        self._find = re.compile(rf"[?&;](?:{names})(?=[=&;/?]|$)", re.IGNORECASE).search
        self._parameter = re.compile(rf"(?:{names})(?:=|$)", re.IGNORECASE).match
        self._in_path = re.compile(rf";(?:{names})(?:=[^;/?]*)?(?=[;/?]|$)", re.IGNORECASE).sub
        self._permutations = Permutations()

    def cleaned(self, url: str) -> str:
        """The URL without the parameters that are dropped."""
        if ("?" not in url and ";" not in url) or self._find(url) is None:
            return url
        path, _, query = url.partition("?")
        path = self._in_path("", path)
        query = "&".join(part for part in query.split("&") if not self._parameter(part))
        return f"{path}?{query}" if query else path

    def verdict(self, target: Target, *, now: float) -> str:
        """'' for a URL to visit, else the reason to skip it. `now` is in seconds since 1970."""
        url = target.url
        if len(url) > MAX_LENGTH:
            return LENGTH
        if url.count("/") > _SLASHES + 2 and (reason := _check_path(url)):
            return reason
        year = _YEAR.search(url)
        if year is not None and _is_endless(url, year, now):
            return CALENDAR
        if "&" in url:
            return _check_query(url) or self._permutations.verdict(url)
        return ""

    def forget(self) -> None:
        """Forget the known queries: their links may have to be added again."""
        self._permutations.clear()


def _check_path(url: str) -> str:
    mark = url.find("?")
    if mark >= 0:
        url = url[:mark]
    if url[-1] == "/":
        url = url[:-1]
    end = url.rfind("/")
    # Links of a site share folders: if the last segment does not occur in its folder, the cached verdict on the folder
    # applies.
    if url.find(url[end:], 0, end) < 0:
        return _check_folder(url[:end])
    return _check_segments(url.split("/")[3:])


@functools.lru_cache(maxsize=20_000)
def _check_folder(url: str) -> str:
    segments = url.split("/")[3:]
    return DEPTH if len(segments) >= MAX_SEGMENTS else _check_segments(segments)


def _check_segments(segments: list[str]) -> str:
    """The reason if a path is too deep or repeats itself, else ''."""
    count = len(segments)
    if count > MAX_SEGMENTS:
        return DEPTH
    if len(set(segments)) == count:
        return ""
    if max(Counter(segments).values()) > MAX_SAME_SEGMENTS:
        return REPETITION
    for size in range(1, count // (MAX_RUNS + 1) + 1):
        run = 0
        for at in range(count - size):
            # A run that equals the one before it: each of its segments equals the one `size` before.
            run = run + 1 if segments[at] == segments[at + size] else 0
            # /11/11/11 is a date or a position on a map.
            if run >= size * MAX_RUNS and not all(segment.isdigit() for segment in segments[at : at + size]):
                return REPETITION
    return ""


def _is_endless(url: str, match: re.Match[str] | None, now: float) -> bool:
    last = int(1970 + YEARS_AHEAD + now / _YEAR_SECONDS)
    while match is not None:
        year = int(match[1])
        if not FIRST_YEAR <= year <= last:
            word = _WORD.search(url)
            month = match[2] or match[5]
            if year > last and (match[3] or word is not None):
                return True
            # Pages about history have such dates, too: before the web, only the URL of a calendar is a trap.
            if year < FIRST_YEAR and word is not None and month and _is_calendar(url):
                return True
        match = _YEAR.search(url, match.end())
    return False


def _is_calendar(url: str) -> bool:
    return any(word[1] is None for word in _WORD.finditer(url))


def _check_query(url: str) -> str:
    parameters = url.partition("?")[2].split("&")
    if len(parameters) > MAX_PARAMETERS:
        return PARAMETERS
    if len(parameters) > MAX_SAME_PARAMETERS:
        names = Counter(parameter.partition("=")[0] for parameter in parameters)
        if max(names.values()) > MAX_SAME_PARAMETERS:
            return PARAMETERS
    return ""
