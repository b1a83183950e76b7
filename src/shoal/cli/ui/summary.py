"""The summary that a crawl ends with."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from shoal.cli.standard_output import is_standard_output
from shoal.cli.ui.console import duration, pluralize, report, size
from shoal.fleet.totals import causes
from shoal.frontier import Frontier
from shoal.model.crawl import Counts, Crawl
from shoal.model.crawl_spec import CrawlSpec
from shoal.model.worker_report import WorkerReport
from shoal.operations import describe
from shoal.settings import Settings, masked

_REASONS = 5
_FORBIDDEN = "forbidden address"
_MEANINGFUL_SECONDS = 3.0
_TYPED = {"store.url": "--store", "store.folder": "--folder", "fetch.proxy": "--proxy"}


async def show(
    frontier: Frontier, crawl: Crawl, spec: CrawlSpec, *, settings: Settings, total: WorkerReport | None = None,
    seconds: float = 0.0, resumed: bool = False,
) -> Counts:  # fmt: skip
    """Print the summary of a crawl that has ended or is paused, and return its counts.

    total      the workers' reports of this run, if there was one
    seconds    the length of this run
    resumed    earlier runs worked on the crawl, so figures of this run are marked
    """
    description = await describe(frontier, crawl)
    counts = description.counts
    ended = f" ({crawl.why})" if crawl.why and crawl.why != crawl.state.value else ""
    lines = [f"Crawl {crawl.id} is {crawl.state.value}{ended}."]
    lines.append(f"  stored      {pluralize(counts.stored, 'page')}, {size(description.bytes)} received")
    if description.items:
        lines.append(f"  items       {description.items:,}")
    if total is not None and total.revisited:
        parts = [f"{total.revisited.get(word, 0):,} {word}" for word in ("unchanged", "changed", "gone")]
        lines.append(f"  revisited   {', '.join(parts)}, {_new(total):,} new")
    for word, number, reasons in (
        ("failed", counts.failed, description.failed), ("excluded", counts.excluded, description.excluded),
    ):  # fmt: skip
        if number:
            lines.append(f"  {word:<10}  {number:,}: {_listed(reasons)}")
    if any(reason.endswith(_FORBIDDEN) for reason in description.failed):
        lines.append(
            "  hint        private networks are refused by default; allow one, e.g. --allow-network 127.0.0.0/8"
        )
    kinds = [] if total is None else sorted(total.trapped.items(), key=lambda item: -item[1])
    trapped = {kind.removeprefix("trap: "): number for kind, number in kinds}
    if trapped:
        lines.append(f"  traps       {pluralize(sum(trapped.values()), 'link')} not followed: {_listed(trapped)}")
    if counts.open:
        lines.append(f"  remaining   {counts.open:,}")
    if total is not None and seconds:
        lines.append(
            f"  time        {duration(seconds)}{' in this run' if resumed else ''}, {rate(total.pages / seconds)}"
        )
        # In a short run, starting the processes takes most of the time.
        if seconds >= _MEANINGFUL_SECONDS and (shares := causes(total)):
            first, *others = [f"{name} {share:.0%}" for name, share in shares if share >= 0.01]
            lines.append(f"  bottleneck  {first} of worker time" + (f"; {', '.join(others)}" if others else ""))
    for output in spec.outputs:
        if is_standard_output(output, settings):
            continue
        lines.append(f"  output      {masked(output)}")
        if counts.stored and (hint := sample_command(output, crawl.id, items=bool(crawl.limits.spider))):
            lines.append(f"  try         {hint}")
    if spec.files:
        lines.append(f"  files       {masked(spec.files)}")
    report(
        "\n".join(lines), event="crawl.ended", crawl=crawl.id, state=crawl.state.value, reason=crawl.why,
        seconds=round(seconds, 3) or None, pages=counts.stored, items=description.items or None,
        revisited=({**total.revisited, "new": _new(total)} if total is not None and total.revisited else None),
        bytes=description.bytes, open=counts.open,
        failed=counts.failed, excluded=counts.excluded, failed_by_reason=description.failed,
        excluded_by_reason=description.excluded, trapped=trapped,
        outputs=[masked(output) for output in spec.outputs], files=masked(spec.files),
    )  # fmt: skip
    return counts


def _new(total: WorkerReport) -> int:
    """Pages of a pass that the crawl did not have before."""
    return total.pages - total.revisited.get("unchanged", 0) - total.revisited.get("changed", 0)


def _listed(reasons: dict[str, int]) -> str:
    shown = [f"{number:,} {reason}" for reason, number in list(reasons.items())[:_REASONS]]
    others = sum(list(reasons.values())[_REASONS:])
    return ", ".join([*shown, f"{others:,} for other reasons"] if others else shown)


def rate(pages_per_second: float) -> str:
    if pages_per_second >= 10 or pages_per_second == 0:
        return f"{pages_per_second:,.0f} pages/s"
    return f"{pages_per_second:.1f} pages/s" if pages_per_second >= 0.1 else f"{pages_per_second * 60:.1f} pages/min"


def sample_command(output: str, crawl: str, *, items: bool = False) -> str:
    """Return a command that shows the first rows of an output, '' if there is none."""
    from shoal.sinks import example_query, is_name

    if is_name(output):
        return ""
    # A relative path is shorter, and the command is run from the current folder.
    return example_query(output, crawl, items=items).replace(f"{Path.cwd()}/", "")


def resume_command(name: str, verb: str, flags: Mapping[str, str], spider: str = "") -> str:
    """Return the command that resumes a crawl, with the flags that the crawl itself does not keep."""
    words = ["shoal", verb, *(["--name", name] if verb == "crawl" else [name])]
    for key, flag in _TYPED.items():
        if key in flags and (verb == "crawl" or key.startswith("store.")):
            words += [flag, flags[key]]
    if verb == "crawl":
        words += ["--spider", spider] if spider else []
        for network in filter(None, flags.get("fetch.allow_networks", "").split(",")):
            words += ["--allow-network", network]
    return shlex.join(words)
