"""A crawl as a person sees it: state, counts, limits, rules, and no secrets."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.frontier import Frontier
from shoal.model.crawl import Counts, Crawl, Limits
from shoal.model.policy import Policy
from shoal.settings import masked

_HIDDEN = "***"


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """Times are seconds since 1970, 0 = not yet. `failed` and `excluded` count by reason, the most frequent first."""

    id: str
    state: str
    why: str
    created_at: float
    ended_at: float
    counts: Counts
    failed: dict[str, int]
    excluded: dict[str, int]
    bytes: int
    limits: Limits
    policy: dict[str, Any]


async def describe(frontier: Frontier, crawl: Crawl) -> Description:
    counts = await frontier.crawls.count(crawl.id)
    tally = await frontier.crawls.tally(crawl.id)
    return Description(
        id=crawl.id,
        state=crawl.state.value,
        why=crawl.why,
        created_at=crawl.created_at,
        ended_at=crawl.ended_at,
        counts=counts,
        failed=_by_reason(counts, "failed:"),
        excluded=_by_reason(counts, "excluded:"),
        bytes=tally.get("bytes", 0),
        limits=crawl.limits,
        policy=_without_secrets(Policy.of(crawl.spec)),
    )


def _by_reason(counts: Counts, prefix: str) -> dict[str, int]:
    found = {name[len(prefix) :]: number for name, number in counts.reasons.items() if name.startswith(prefix)}
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def _without_secrets(policy: Policy) -> dict[str, Any]:
    shown = policy.spec()
    for name in ("cookie", "auth"):
        shown[name] = _HIDDEN if shown[name] else ""
    # Any header may be a key to something.
    shown["headers"] = dict.fromkeys(shown["headers"], _HIDDEN)
    shown["outputs"] = [masked(output) for output in shown["outputs"]]
    shown["seeds"] = [masked(seed) if "@" in seed else seed for seed in shown["seeds"]]
    return shown
