"""How a crawl ended, in lines for people."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from shoal.cli.ui.console import counted, duration, say, size
from shoal.fleet.totals import causes
from shoal.frontier import Frontier
from shoal.model.crawl import Counts, Crawl
from shoal.model.crawl_spec import CrawlSpec
from shoal.model.worker_report import WorkerReport
from shoal.operations import describe
from shoal.settings import masked

_REASONS = 5
_FORBIDDEN = "forbidden address"
_TELLING_SECONDS = 3.0
_TYPED = {"store.url": "--store", "store.folder": "--folder", "fetch.proxy": "--proxy"}


async def show(
    frontier: Frontier, crawl: Crawl, policy: CrawlSpec, *, total: WorkerReport | None = None, seconds: float = 0.0,
    resumed: bool = False,
) -> Counts:  # fmt: skip
    """The summary of a crawl that has ended or was paused; with `total` and `seconds` also of this run.

    `resumed`: there were others before, so that the two are told apart.
    """
    told = await describe(frontier, crawl)
    counts = told.counts
    ended = f" ({crawl.why})" if crawl.why and crawl.why != crawl.state.value else ""
    lines = [f"Crawl {crawl.id} is {crawl.state.value}{ended}."]
    lines.append(f"  stored    {counted(counts.stored, 'page')}, {size(told.bytes)} received")
    for word, number, reasons in (
        ("failed", counts.failed, told.failed), ("excluded", counts.excluded, told.excluded),
    ):  # fmt: skip
        if number:
            lines.append(f"  {word:<8}  {number:,}: {_listed(reasons)}")
    if any(reason.endswith(_FORBIDDEN) for reason in told.failed):
        lines.append(
            "  hint      addresses of private networks are refused; allow one with --allow-network 127.0.0.0/8"
        )
    found = [] if total is None else sorted(total.trapped.items(), key=lambda one: -one[1])
    trapped = {kind.removeprefix("trap: "): number for kind, number in found}
    if trapped:
        lines.append(f"  traps     {counted(sum(trapped.values()), 'link')} not followed: {_listed(trapped)}")
    if counts.open:
        lines.append(f"  to go     {counts.open:,}")
    if total is not None and seconds:
        lines.append(
            f"  time      {duration(seconds)}{' of this run' if resumed else ''}, {rate(total.pages / seconds)}"
        )
        # Of a short run most is the start of the processes, which says nothing.
        if seconds >= _TELLING_SECONDS and (shares := causes(total)):
            first, *rest = [f"{name} {share:.0%}" for name, share in shares if share >= 0.01]
            lines.append(f"  limit     {first} of the workers' time" + (f"; {', '.join(rest)}" if rest else ""))
    for output in policy.outputs:
        lines.append(f"  output    {masked(output)}")
        if counts.stored and (hint := look(output, crawl.id, items=bool(crawl.limits.spider))):
            lines.append(f"  look      {hint}")
    if policy.files:
        lines.append(f"  files     {masked(policy.files)}")
    say(
        "\n".join(lines), event="crawl.end", crawl=crawl.id, state=crawl.state.value, why=crawl.why,
        seconds=round(seconds, 3) or None, pages=counts.stored, bytes=told.bytes, open=counts.open,
        failed=counts.failed, excluded=counts.excluded, failed_by_reason=told.failed, excluded_by_reason=told.excluded,
        trapped=trapped,
        outputs=[masked(output) for output in policy.outputs], files=masked(policy.files),
    )  # fmt: skip
    return counts


def _listed(reasons: dict[str, int]) -> str:
    shown = [f"{number:,} {reason}" for reason, number in list(reasons.items())[:_REASONS]]
    rest = sum(list(reasons.values())[_REASONS:])
    return ", ".join([*shown, f"{rest:,} for other reasons"] if rest else shown)


def rate(pages_a_second: float) -> str:
    if pages_a_second >= 10 or pages_a_second == 0:
        return f"{pages_a_second:,.0f} pages/s"
    return f"{pages_a_second:.1f} pages/s" if pages_a_second >= 0.1 else f"{pages_a_second * 60:.1f} pages/min"


def look(output: str, crawl: str, *, items: bool = False) -> str:
    """A command that shows the first rows of an output, '' if there is none."""
    from shoal.sinks import example_query, is_name

    return "" if is_name(output) else example_query(output, crawl, items=items)


def command(name: str, verb: str, flags: Mapping[str, str], spider: str = "") -> str:
    """The command that goes on with a crawl: what is not kept in the crawl itself has to be said again."""
    words = ["shoal", verb, *(["--name", name] if verb == "crawl" else [name])]
    for key, flag in _TYPED.items():
        if key in flags and (verb == "crawl" or key.startswith("store.")):
            words += [flag, flags[key]]
    if verb == "crawl":
        words += ["--spider", spider] if spider else []
        for network in filter(None, flags.get("fetch.allow_networks", "").split(",")):
            words += ["--allow-network", network]
    return shlex.join(words)
