"""Translates the server's error replies: which are retried, and which become one of Shoal's errors."""

from __future__ import annotations

from enum import Enum, auto

from shoal.errors import StoreCorrupt, StoreError, StoreFull, StoreRefused

# The server is not ready for this call: wait and retry.
_WAIT = {"LOADING", "MASTERDOWN", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOREPLICAS", "MISCONF"}
# The server is not the primary, or not yet: refresh the topology.
_ELSEWHERE = {"LOADING", "MASTERDOWN", "READONLY"}
# With cluster-allow-reads-when-down, a script starts on a node that is out of the cluster and fails at its first write.
_DOWN = "while the cluster is down"
_REFUSED = {"NOAUTH", "WRONGPASS", "NOPERM", "DENIED"}
# Older servers put these inside an ERR.
_REFUSED_TEXTS = (
    "invalid password",
    "invalid username-password",
    "without any password configured",
    "ACL failure in script",
    "can't run this command",
    "DB index is out of range",
)


class ReplyFault(Enum):
    WAIT = auto()
    ELSEWHERE = auto()
    MOVED = auto()
    ASK = auto()
    NOSCRIPT = auto()
    FINAL = auto()


def classify(message: str) -> ReplyFault:
    """What to do about an error reply."""
    code = message.split(" ", 1)[0]
    if _DOWN in message:
        return ReplyFault.WAIT
    if code in _ELSEWHERE:
        return ReplyFault.ELSEWHERE
    if code in _WAIT:
        return ReplyFault.WAIT
    if code == "MOVED":
        return ReplyFault.MOVED
    if code == "ASK":
        return ReplyFault.ASK
    if code == "NOSCRIPT":
        return ReplyFault.NOSCRIPT
    return ReplyFault.FINAL


def translate(message: str, where: str, doing: str) -> StoreError:
    """The error to raise for a reply that no retry will change."""
    code = message.split(" ", 1)[0]
    if code == "OOM" or "OOM command not allowed" in message:
        return StoreFull(
            f"The store at {where} has no memory left for {doing}; raise its maxmemory or let the crawl drain."
        )
    if code == "WRONGTYPE" or "WRONGTYPE Operation" in message:
        return StoreCorrupt(
            f"A key that {doing} uses on {where} holds a value that Shoal did not write; use a namespace or database "
            f"of its own ({_first_sentence(message)})."
        )
    if code in _REFUSED or any(text in message for text in _REFUSED_TEXTS):
        return StoreRefused(
            f"The store at {where} refuses {doing} ({_first_sentence(message)}); "
            "check user, password and rights in the store URL."
        )
    return StoreError(message if doing.startswith("script ") else f"{doing} failed on {where}: {message}")


def _first_sentence(message: str) -> str:
    return message.partition(". ")[0].rstrip(".")
