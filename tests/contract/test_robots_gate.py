"""robots.txt that redirects to another host: the result of that host's visit reaches the first host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from shoal.errors import StoreFull
from shoal.frontier.robots_cache import RobotsEntry
from shoal.leases.held_lease import HeldLease
from shoal.leases.robots_gate import FetchRobots, RobotsGate, RobotsRequest, Wait, copy_name
from shoal.model import Limits, Response, Visit
from shoal.urls.canonical import canonical
from tests.contract.fleet import Fleet

HERE, THERE = "here.example", "there.example"
PAGE = canonical(f"http://{HERE}/")
NAME = copy_name(PAGE, "shoal")


def answering(status: int, *headers: tuple[str, str]) -> FetchRobots:
    async def fetch(request: RobotsRequest) -> Response:
        return Response(url=request.url, status=status, headers=headers)

    return fetch


async def entry(fleet: Fleet) -> RobotsEntry:
    return RobotsEntry.unpack((await fleet.worker().robots.read(HERE, NAME))[0])


@pytest.mark.parametrize("status", [404, 503])
async def test_a_result_that_is_there_before_the_first_host_waits_for_it_is_kept(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits())
    await ann.add("c", [Visit(url=PAGE.url)])
    (lease,) = await ann.lease(hosts=1, visits=1)
    add = ann.add

    async def add_and_visit(crawl: str, visits: Sequence[Visit], **options: Any) -> Any:
        added = await add(crawl, visits, **options)
        (other,) = await bob.lease(hosts=1, visits=1)
        await RobotsGate(bob, answering(status)).fetch_redirected(HeldLease(other), other.visits[0])
        return added

    monkeypatch.setattr(ann, "add", add_and_visit)
    gate = RobotsGate(ann, answering(302, ("location", f"http://{THERE}/rules.txt")))
    assert isinstance(await gate.rules(HeldLease(lease), PAGE, "shoal", "c"), Wait)
    stored = await entry(fleet)
    assert not stored.pending_until
    assert bool(stored.unreachable_at) == (status == 503)
    assert (stored.copy is not None) == (status == 404)


async def test_a_host_does_not_wait_for_a_visit_that_could_not_be_added(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits())
    await ann.add("c", [Visit(url=PAGE.url)])
    (lease,) = await ann.lease(hosts=1, visits=1)

    async def refuse(*_: Any, **__: Any) -> None:
        raise StoreFull("The store is full.")

    monkeypatch.setattr(ann, "add", refuse)
    gate = RobotsGate(ann, answering(302, ("location", f"http://{THERE}/rules.txt")))
    with pytest.raises(StoreFull):
        await gate.rules(HeldLease(lease), PAGE, "shoal", "c")
    assert not (await entry(fleet)).pending_until
