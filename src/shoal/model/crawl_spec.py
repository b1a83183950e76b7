"""A crawl's policy: what its workers need to know of it, kept as the crawl's `spec` in the store."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.errors import InvalidLimit
from shoal.model.validation import WIDEST, number, whole
from shoal.version import __version__

DEFAULT_USER_AGENT = "Shoal/" + __version__.rpartition(".")[0]
LINK_KINDS = ("a", "area", "iframe", "frame", "next", "canonical", "alternate")
# Parameters that name a visitor or a campaign, and never what is shown. A * at the end stands for any ending.
DROPPED_PARAMETERS = (
    "utm_*", "fbclid", "gclid", "dclid", "msclkid", "yclid", "mc_cid", "mc_eid", "_ga", "_gl",
    "phpsessid", "jsessionid", "aspsessionid*", "cfid", "cftoken",
)  # fmt: skip
_MAX_SEEDS = 1000
_FOREIGN = frozenset(' :()<>@,;\\"/[]?={}')


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is fetched, how we present ourselves, and where the records go.

    `seeds` are the first thousand: they say what the scope is and whom `cookie` and `auth` are for.
    With `by_address`, all names of one address are one host to politeness: for servers that many sites share.
    `traps` refuses URLs that only endless sites make; `drop_parameters` are taken out of every link.
    `outputs` are URIs with absolute paths, `files` is where bodies are kept whose content type begins with one of
    `file_types` (all of them when there are none); `machine` is where those that are files belong.
    `parent` is the crawl whose spider sent its links here, for another spider; records carry that crawl's name.
    An output may also be the name of one in `[outputs]` of the workers' settings.
    `app` is whose crawl it is, `attributes` what they want to have back with it, `notify` the URL that is told its end.
    """

    seeds: tuple[str, ...] = ()
    reach: str = "host"
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    deny_extensions: tuple[str, ...] = ()
    follow: bool = True
    links: tuple[str, ...] = ("a", "area", "iframe", "frame", "next")
    max_bytes: int = 0
    retries: int = 3
    delay_factor: float = 1.0
    timeout_seconds: float = 30.0
    body_bytes: int = 10_000_000
    user_agent: str = DEFAULT_USER_AGENT
    headers: dict[str, str] = {}
    cookie: str = ""
    auth: str = ""
    ignore_robots: bool = False
    by_address: bool = False
    sitemaps: bool = False
    traps: bool = True
    drop_parameters: tuple[str, ...] = DROPPED_PARAMETERS
    outputs: tuple[str, ...] = ()
    files: str = ""
    file_types: tuple[str, ...] = ()
    machine: str = ""
    parent: str = ""
    app: str = ""
    attributes: dict[str, Any] = {}
    notify: str = ""

    def check(self) -> None:
        """Refuse what cannot be meant. Patterns and the scope are checked where they are compiled."""
        whole("max_bytes", self.max_bytes, 0, WIDEST)
        whole("retries", self.retries, 0, 100)
        number("delay_factor", self.delay_factor, 0, 100)
        number("timeout_seconds", self.timeout_seconds, 0.1, 3600)
        whole("body_bytes", self.body_bytes, 1, 2**31 - 1)
        whole("The number of seeds", len(self.seeds), 0, _MAX_SEEDS)
        for kind in self.links:
            if kind not in LINK_KINDS:
                raise InvalidLimit(f"links has {kind!r}: it may have {', '.join(LINK_KINDS)}.")
        for kind in self.file_types:
            if "/" not in kind:
                raise InvalidLimit(f"file_types has {kind!r:.80}, no content type: write image/ or application/pdf.")
        if self.file_types and not self.files:
            raise InvalidLimit("file_types says which bodies are kept: say by files where that is, too.")
        if self.auth and ":" not in self.auth:
            raise InvalidLimit("auth has no colon between user and password.")
        for name, value in (("user_agent", self.user_agent), ("cookie", self.cookie), ("auth", self.auth)):
            _header(name, value)
        for name, value in self.headers.items():
            _header(f"The header {name!r}", name)
            _header(f"The header {name!r}", value)
            if not name or not name.isascii() or not name.isprintable() or not _FOREIGN.isdisjoint(name):
                raise InvalidLimit(f"A header is named {name!r}: use letters, digits and -.")

    def spec(self) -> dict[str, Any]:
        """As the store keeps it."""
        kept: dict[str, Any] = msgspec.to_builtins(self)
        return kept

    @classmethod
    def of(cls, spec: dict[str, Any]) -> Policy:
        """The policy of a crawl's spec; an empty one, of a crawl made by hand, is the default."""
        try:
            policy = msgspec.convert(spec, cls)
        except msgspec.ValidationError as error:
            raise InvalidLimit(f"The specification of a crawl is not this version's: {error}.") from None
        policy.check()
        return policy


def _header(what: str, value: str) -> None:
    # A line break would begin a header of somebody else's choice.
    if any(c in value for c in "\r\n\0"):
        raise InvalidLimit(f"{what} holds a line break or NUL: a header is one line.")
