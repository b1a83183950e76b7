"""Which machine may work on a crawl: output files belong to one machine, and a crawl without workers is interrupted.

Must not open outputs: sinks do.
"""

from __future__ import annotations

from shoal.errors import SinkRefused
from shoal.frontier import Frontier
from shoal.model.crawl import CrawlKind, State
from shoal.model.crawl_spec import CrawlSpec
from shoal.settings import masked
from shoal.sinks import is_local, is_name
from shoal.sinks.bodies import are_local


async def check_places(frontier: Frontier, policy: CrawlSpec) -> None:
    """Refuse outputs that are files of `policy.machine` while workers of other machines are on the store.

    A policy without a machine belongs to an embedded store, which other machines cannot reach.
    """
    files = _files(policy)
    if not files or not policy.machine:
        return
    for worker in await frontier.workers.alive():
        if worker.heartbeat.machine not in ("", policy.machine):
            raise SinkRefused(
                f"The output {masked(files[0])} is a file on this machine, but worker {worker.name} of another machine "
                "uses the store and cannot write it; pass the URL of a database, or stop the other workers."
            )


def check_machine(crawl: str, policy: CrawlSpec, machine: str) -> None:
    """Refuse to resume a crawl here if its outputs are files on another machine."""
    files = _files(policy)
    if files and policy.machine not in ("", machine):
        raise SinkRefused(
            f"Crawl {crawl!r} writes {masked(files[0])}, a file on machine {policy.machine}; resume it there."
        )


async def check_joining(frontier: Frontier, machine: str) -> None:
    """Refuse to work on a store where a running crawl writes files of another machine."""
    async for crawl in frontier.crawls.all():
        # A branch is checked with its crawl, and these workers do not serve Scrapy crawls.
        if crawl.state is State.RUNNING and crawl.kind not in (CrawlKind.BRANCH, CrawlKind.SCRAPY):
            policy = CrawlSpec.of(crawl)
            files = _files(policy)
            if files and policy.machine not in ("", machine):
                raise SinkRefused(
                    f"Crawl {crawl.id!r} writes {masked(files[0])}, a file on another machine, which a worker here "
                    "cannot write; wait until it ends, or pause it with `shoal pause`."
                )


def _files(policy: CrawlSpec) -> list[str]:
    """The outputs of a crawl that are files on one machine. Named outputs are left out: its workers know their URIs."""
    files = [output for output in policy.all_outputs if not is_name(output) and is_local(output)]
    return [*files, policy.files] if policy.files and are_local(policy.files) else files


async def pause_interrupted(frontier: Frontier, *, but: str) -> list[str]:
    """Pause running crawls without workers, except one; returns their names.

    Only for a store that has no other worker: such crawls were interrupted, and would run beside the next crawl.
    """
    paused = []
    async for crawl in frontier.crawls.all():
        # A branch is paused with its crawl; submitted crawls wait for workers of any machine.
        if crawl.state is not State.RUNNING or crawl.id == but or crawl.kind is CrawlKind.BRANCH:
            continue
        # A program's own crawl has no command that finishes it: with nothing left to do it was not interrupted.
        if crawl.kind is CrawlKind.BARE and not (await frontier.crawls.count(crawl.id)).open:
            continue
        if not (await frontier.crawls.facts.read(crawl.id)).submitted:
            await frontier.crawls.pause(crawl.id)
            paused.append(crawl.id)
    return paused
