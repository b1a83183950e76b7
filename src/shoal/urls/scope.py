"""Which URLs belong to a crawl: its scope around the seeds, allow and deny patterns, denied extensions.

Owns the verdict on one URL. Everything is compiled when the scope is built; a verdict takes a few look-ups. Patterns
run on RE2, in time linear in the URL for any pattern. Must not know depth and counts: the frontier does.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from shoal.errors import InvalidLimit
from shoal.model.crawl_spec import SCOPES
from shoal.urls.canonical import Target

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

# The store counts reasons by their text: they are short, and there are no more reasons than rules.
OUTSIDE = {kind: f"scope: other {kind}" for kind in SCOPES}
NOT_ALLOWED = "scope: no allow pattern"
_SHOWN = 60
# RE2 refuses larger sets itself, but only after minutes: short patterns such as \pL{100} are large programs.
_MAX_PROGRAM = 150_000
_REMEMBERED = 100_000
_Prefixes = tuple[frozenset[str], tuple[int, ...]]


@cache
def _suffixes() -> PublicSuffixList:
    # Reading the list takes some 40 ms: only crawls of whole domains pay for it.
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList()


def registrable_domain(name: str) -> str:
    """The registered part of a host name, '' if it has none: `a.co.uk` for `www.a.co.uk`."""
    if not name or name.startswith("."):
        return ""
    try:
        return _suffixes().privatesuffix(name.lower()) or ""
    except (ValueError, UnicodeError):
        return ""


def domain_of(host: str) -> str:
    """The domain of a host for the scope `domain`: its registrable domain, or the name itself (e.g. of addresses)."""
    name = host
    if host.startswith("["):
        name = host.partition("]")[0] + "]"
    elif ":" in host:
        name = host.partition(":")[0]
    # A host that ends in a number is an address according to the URL standard.
    if name.startswith("[") or name.rpartition(".")[2].isdigit():
        return name
    return registrable_domain(name) or name


class Scope:
    """The rules of one crawl, built once and never changed.

    `kind` is the area around the seeds: the same host; the same registrable domain with all its hosts and ports; below
    the seeds' paths; or anywhere. A URL is out of scope if it matches a `deny` pattern or ends in one of
    `deny_extensions`, and, if there are `allow` patterns, if it matches none of them. Patterns are searched for in the
    whole URL.
    """

    __slots__ = (
        "_allow",
        "_deny",
        "_deny_patterns",
        "_extensions",
        "_known",
        "_outside",
        "_prefixes",
        "_seed_names",
        "kind",
    )

    def __init__(
        self,
        kind: str,
        seeds: Iterable[Target] = (),
        *,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        deny_extensions: Iterable[str] = (),
    ) -> None:
        if kind not in SCOPES:
            raise InvalidLimit(f"scope is {kind!r}: it must be one of {', '.join(SCOPES)}.")
        self.kind = kind
        self._outside = OUTSIDE[kind]
        self._seed_names: frozenset[str] = frozenset()
        self._prefixes: dict[str, _Prefixes] = {}
        self._known: dict[str, bool] = {}
        if kind == "host":
            self._seed_names = frozenset(seed.host for seed in seeds)
        elif kind == "domain":
            self._seed_names = frozenset(domain_of(seed.host) for seed in seeds)
        elif kind == "prefix":
            self._prefixes = _prefixes(seeds)
        self._allow = _compiled("allow", allow)[0]
        self._deny, self._deny_patterns = _compiled("deny", deny)
        self._extensions = frozenset(_extension(text) for text in deny_extensions)

    def verdict(self, target: Target, *, seed: bool = False, page_host: str = "") -> str:
        """'' when the URL is in scope, else the reason why not.

        A seed is given explicitly, so it needs no allow pattern: it may be only the way to allowed pages.
        `page_host` is the host of the page that has the link. That page is in the crawl, perhaps because a seed on
        another host led to it, so the rest of its host or domain is in scope, too.
        """
        kind = self.kind
        if kind == "host":
            if target.host != page_host and target.host not in self._seed_names:
                return self._outside
        elif kind == "domain":
            if not self._in_domain(target.host) and (not page_host or domain_of(target.host) != domain_of(page_host)):
                return self._outside
        elif kind == "prefix" and not self._below(target):
            return self._outside
        if self._extensions:
            ending = _ending(target)
            if ending in self._extensions:
                return f"scope: extension .{ending}"
        if self._deny is not None:
            matched = self._deny.Match(target.url)
            if matched:
                return f"scope: deny pattern {self._deny_patterns[min(matched)]}"
        if self._allow is not None and not seed and not self._allow.Match(target.url):
            return NOT_ALLOWED
        return ""

    def _in_domain(self, host: str) -> bool:
        known = self._known.get(host)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                # A crawl of endless subdomains must not fill the memory; to compute a domain again takes microseconds.
                self._known.clear()
            known = self._known[host] = domain_of(host) in self._seed_names
        return known

    def _below(self, target: Target) -> bool:
        known = self._prefixes.get(target.host)
        if known is None:
            return False
        prefixes, lengths = known
        rest = _rest(target)
        # A prefix without a final slash covers one page and the paths below it: /docs does not cover /docs2.
        return any(
            rest[:length] in prefixes and (rest[length - 1] == "/" or rest[length : length + 1] in ("", "/", "?"))
            for length in lengths
        )


def _rest(target: Target) -> str:
    """The path and query, also of a target whose `rest` is the whole URL."""
    if not target.whole:
        return target.rest
    after = target.url.partition("://")[2]
    return after[after.find("/") :]


def _prefixes(seeds: Iterable[Target]) -> dict[str, _Prefixes]:
    """By host, the covered paths and their lengths, for http and https alike. The prefix of a file is its folder.

    /docs/ and /docs cover the paths below docs, /docs/index.html the paths below /docs/.
    """
    by_host: dict[str, set[str]] = {}
    for seed in seeds:
        path = _rest(seed).partition("?")[0]
        folder, _, last = path.rpartition("/")
        by_host.setdefault(seed.host, set()).add(f"{folder}/" if "." in last else path)
    return {host: (frozenset(paths), tuple(sorted({len(path) for path in paths}))) for host, paths in by_host.items()}


def _extension(text: str) -> str:
    ending = text.lower().lstrip(".") if isinstance(text, str) else ""
    if not ending or not ending.isascii() or not ending.replace(".", "").isalnum():
        raise InvalidLimit(f"deny extension {text!r} is invalid: use letters and digits, e.g. 'zip'.")
    return ending


def _ending(target: Target) -> str:
    last = _rest(target).partition("?")[0].rpartition("/")[2]
    return last.rpartition(".")[2].lower() if "." in last else ""


def _compiled(which: str, patterns: Iterable[str]) -> tuple[Any, tuple[str, ...]]:
    """All patterns of a kind as one automaton (None if there are none), and each pattern as reasons show it."""
    patterns = tuple(patterns)
    if not patterns:
        return None, ()
    import re2

    shown: list[str] = []
    size = 0
    options = re2.Options()
    options.log_errors = False
    pattern_set = re2.Set.SearchSet(options)
    for pattern in patterns:
        text = repr(pattern)
        try:
            size += re2.compile(pattern, options).programsize
            if size <= _MAX_PROGRAM:
                pattern_set.Add(pattern)
        except (re2.error, TypeError, ValueError) as error:
            raise InvalidLimit(f"{which} pattern {text} does not compile: {_reason(error)}.") from None
        if size > _MAX_PROGRAM:
            raise InvalidLimit(f"The {which} patterns are too large together: the limit is reached at {text:.80}.")
        shown.append(pattern if len(pattern) <= _SHOWN else pattern[: _SHOWN - 3] + "...")
    try:
        pattern_set.Compile()
    except (re2.error, MemoryError, RuntimeError, ValueError) as error:
        raise InvalidLimit(f"The {which} patterns are too large together: {_reason(error)}.") from None
    return pattern_set, tuple(shown)


def _reason(error: Exception) -> str:
    detail = error.args[0] if error.args else error
    return (detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)).rstrip(".")
