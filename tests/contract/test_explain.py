"""Why a URL is visited or not: each state that a URL can have, and each rule that can exclude it."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import UnknownCrawl
from shoal.frontier import Done, Frontier
from shoal.frontier.robots_cache import RobotsEntry
from shoal.frontier.samples import add_samples, read_samples
from shoal.frontier.url_state import UrlPlace
from shoal.model import Limits, Visit
from shoal.model.crawl_spec import CrawlSpec
from shoal.operations.explain import Check, Explanation, Verdict, explain, explain_by_id
from shoal.politeness.robots_parser import parse
from shoal.politeness.robots_policy import RobotsCopy
from tests.contract.fleet import Fleet, drain, end

HOST = "a.example"
START = f"http://{HOST}/"


async def start(worker: Frontier, *urls: str, limits: dict[str, Any] | None = None, **spec: Any) -> None:
    stored = CrawlSpec(seeds=(START,), outputs=("x.db",), **spec).stored()
    await worker.crawls.create("c", Limits(delay_seconds=0, **(limits or {})), spec=stored)
    await worker.add("c", [Visit(url=START, found="seed"), *urls])


async def ask(worker: Frontier, url: str) -> Explanation:
    return await explain_by_id(worker, "c", url)


def check(explanation: Explanation, name: str) -> Check:
    return next(check for check in explanation.checks if check.name == name)


async def test_a_waiting_url_is_found_with_the_number_of_visits_before_it(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann, *(f"{START}{number}" for number in range(2500)))
    explanation = await ask(ann, f"{START}2100")
    assert (explanation.state, explanation.ahead, explanation.depth) == (UrlPlace.WAITING, 2101, 0)
    assert explanation.verdict is Verdict.HELD
    assert "No worker is connected" in explanation.text
    await ann.workers.beat({})
    explanation = await ask(ann, f"{START}2100")
    assert explanation.verdict is Verdict.QUEUED
    assert explanation.text == "It is queued behind 2,101 visits of host a.example."


async def test_priorities_and_depth_first_order_decide_what_is_before_a_url(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann, f"{START}low", limits={"order": "lifo"})
    await ann.add("c", [Visit(url=f"{START}high", priority=5), Visit(url=f"{START}higher", priority=9)])
    places = {name: (await ask(ann, f"{START}{name}")).ahead for name in ("", "low", "high", "higher")}
    assert places == {"": 3, "low": 2, "high": 1, "higher": 0}


async def test_a_leased_url_names_its_worker_and_a_finished_one_is_done(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await start(ann)
    leases = await bob.lease()
    explanation = await ask(ann, START)
    assert (explanation.state, explanation.worker, explanation.verdict) == (UrlPlace.LEASED, "bob", Verdict.QUEUED)
    assert explanation.until > fleet.clock.seconds
    await end(bob, leases)
    explanation = await ask(ann, START)
    assert (explanation.state, explanation.verdict) == (UrlPlace.DONE, Verdict.VISITED)


async def test_a_retry_and_a_failure_are_found_with_their_time_and_reason(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann)
    (lease,) = await ann.lease()
    await ann.acknowledge_all([Done(lease=lease, outcomes=[lease.visits[0].retry(90)])])
    explanation = await ask(ann, START)
    assert explanation.state is UrlPlace.LATER
    assert explanation.until == pytest.approx(fleet.clock.seconds + 90, abs=1)
    assert "retried in 90 s" in explanation.text
    fleet.clock.tick(100)
    await drain(fleet, ann, how=lambda visit: visit.failed("status 500"))
    explanation = await ask(ann, START)
    assert (explanation.state, explanation.reason, explanation.verdict) == (
        UrlPlace.FAILED,
        "status 500",
        Verdict.FAILED,
    )
    assert "shoal failed c --retry" in explanation.text


async def test_urls_of_a_host_that_was_given_up_are_shown_as_failed(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann, f"{START}x")
    await ann.hosts.block(HOST, "complaint")
    explanation = await ask(ann, f"{START}x")
    assert (explanation.state, explanation.reason) == (UrlPlace.FAILED, "complaint")
    assert not check(explanation, "host").passed
    unseen = await ask(ann, f"{START}y")
    assert unseen.verdict is Verdict.EXCLUDED
    assert unseen.text.startswith("The host is blocked (complaint). Unblock it with `shoal hosts a.example --unblock`.")


async def test_a_back_off_is_the_reason_why_a_url_waits(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann)
    await ann.hosts.postpone(HOST, 120, failed=True, reason="status 503")
    explanation = await ask(ann, START)
    assert explanation.verdict is Verdict.HELD
    assert check(explanation, "host").text == "The host is paused after status 503 for another 120 s."


@pytest.mark.parametrize(
    ("spec", "url", "name", "rule"),
    [
        ({}, "http://b.example/", "scope", "--scope host"),
        ({"scope": "domain"}, "http://b.test/", "scope", "--scope domain"),
        ({"scope": "prefix"}, "http://b.example/", "scope", "--scope prefix"),
        ({"follow": False}, f"{START}x", "scope", "--no-follow"),
        ({"deny": ("/x",)}, f"{START}x", "patterns", "--deny '/x'"),
        ({"deny_extensions": ("zip",)}, f"{START}x.zip", "patterns", "--deny-extension zip"),
        ({"allow": ("/docs",)}, f"{START}x", "patterns", "--allow '/docs'"),
        ({}, f"{START}calendar/2150-01-01", "trap", "trap: calendar"),
        ({}, "ftp://a.example/", "scope", ""),
    ],
)
async def test_each_rule_names_the_flag_that_excludes_the_url(
    fleet: Fleet, spec: dict[str, Any], url: str, name: str, rule: str
) -> None:
    ann = fleet.worker()
    await start(ann, **spec)
    explanation = await ask(ann, url)
    (against,) = [rule for rule in explanation.checks if rule.passed is False and rule.name == name]
    assert against.rule == rule
    assert explanation.verdict is Verdict.EXCLUDED
    assert against.text in explanation.text
    assert explanation.state is UrlPlace.UNKNOWN


async def test_a_start_url_needs_neither_scope_nor_allow_pattern(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann, allow=("/docs",))
    explanation = await ask(ann, START)
    assert check(explanation, "scope").text == "It is a start URL."
    assert check(explanation, "patterns").passed


async def test_a_url_that_no_rule_excludes_is_allowed(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann, limits={"max_depth": 2})
    explanation = await ask(ann, f"{START}x?utm_source=mail")
    assert explanation.verdict is Verdict.ALLOWED
    assert explanation.canonical == f"{START}x"
    assert check(explanation, "url").text == f"Shoal removes query parameters from links to it: they lead to {START}x."
    depth = check(explanation, "depth")
    assert (depth.passed, depth.rule) == (None, "--max-depth 2")


async def test_a_url_beyond_a_limit_is_set_aside(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann, limits={"max_depth": 2, "max_pages_per_host": 1})
    await ann.add("c", [Visit(url=f"{START}deep?a=[1]*", depth=3), Visit(url=f"{START}second")])
    explanation = await ask(ann, f"{START}deep?a=[1]*")
    assert (explanation.state, explanation.reason, explanation.depth) == (UrlPlace.SET_ASIDE, "depth", 3)
    assert not check(explanation, "depth").passed
    await drain(fleet, ann)
    explanation = await ask(ann, f"{START}second")
    assert (explanation.state, explanation.reason) == (UrlPlace.SET_ASIDE, "pages per host")
    assert check(explanation, "limits").rule == "--max-pages-per-host 1"


async def test_a_crawl_that_ended_at_a_limit_names_it(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann, f"{START}x")
    await ann.crawls.end(await ann.crawls.get("c"), "max pages")
    explanation = await ask(ann, f"{START}x")
    assert explanation.verdict is Verdict.EXCLUDED
    assert explanation.text == "It was queued when the crawl ended (max pages)."
    assert check(explanation, "limits").rule == "--max-pages"


async def test_the_line_of_robots_txt_that_forbids_a_url_is_named(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann, f"{START}private/x")
    assert check(await ask(ann, START), "robots.txt").passed is None
    text = b"# ours\nUser-agent: *\nDisallow: /\n\nUser-agent: Shoal\nDisallow: /private\nAllow: /private/open\n"
    copy = RobotsCopy(parse(text, "shoal"), fleet.clock.seconds)
    await ann.robots.write(HOST, f"http://{HOST} shoal", RobotsEntry(copy).pack(), known=True)
    explanation = await ask(ann, f"{START}private/x")
    assert explanation.verdict is Verdict.EXCLUDED
    against = check(explanation, "robots.txt")
    assert against.rule == f"{START}robots.txt line 6"
    assert against.text == "Rule `Disallow: /private` of group `User-agent: Shoal` forbids it."
    allowed = check(await ask(ann, f"{START}private/open"), "robots.txt")
    assert (allowed.passed, allowed.rule) == (True, f"{START}robots.txt line 7")
    assert check(await ask(ann, START), "robots.txt").text.startswith("No rule for shoal")
    await drain(fleet, ann, how=lambda visit: visit.excluded("robots.txt"))
    assert (await ask(ann, f"{START}private/x")).text.startswith("It was excluded. Rule `Disallow: /private`")


async def test_an_unreachable_robots_txt_forbids_every_page(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann)
    entry = RobotsEntry(unreachable_at=fleet.clock.seconds)
    await ann.robots.write(HOST, f"http://{HOST} shoal", entry.pack(), known=False)
    assert "unreachable" in check(await ask(ann, START), "robots.txt").text


async def test_a_url_of_a_branch_is_found_in_its_crawl(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann, limits={"spider": "one"})
    branch = await ann.crawls.branch("c", "two")
    await ann.add(branch, [f"{START}x"])
    assert (await ask(ann, f"{START}x")).state is UrlPlace.WAITING


async def test_an_invalid_url_and_an_unknown_crawl_are_reported(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann)
    explanation = await ask(ann, "mailto:a@b.example")
    assert (explanation.verdict, explanation.canonical) == (Verdict.EXCLUDED, "")
    with pytest.raises(UnknownCrawl):
        await explain_by_id(ann, "d", START)


async def test_nothing_is_changed_and_the_result_is_plain_data(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann, f"{START}x")
    before = await fleet.state()
    explanation = (await explain(ann, await ann.crawls.get("c"), f"{START}x")).to_dict()
    assert await fleet.state() == before
    assert (explanation["verdict"], explanation["state"]) == ("held", "waiting")
    assert isinstance(explanation["checks"][0], dict)


async def test_samples_of_a_reason_are_its_first_20_urls_each_once(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann)
    urls = [f"{START}{number}" for number in range(300)]
    await add_samples(ann, "c", [("trap: permutation", url) for url in urls for _ in range(2)])
    await add_samples(ann, "c", [("redirect", START)])
    samples = await read_samples(ann, await ann.crawls.get("c"))
    assert samples == {"trap: permutation": tuple(urls[:20]), "redirect": (START,)}
    explanation = await ask(ann, urls[3])
    assert (explanation.verdict, explanation.text) == (
        Verdict.EXCLUDED,
        "It was found and not followed: trap: permutation.",
    )
    await drain(fleet, ann, how=lambda visit: visit.excluded("redirect"))
    assert (await ask(ann, START)).text == "It was excluded: redirect."


async def test_reasons_with_samples_are_bounded_and_deleted_with_their_crawl(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann)
    await add_samples(ann, "c", [(f"scope: deny pattern {number}", START) for number in range(150)])
    crawl = await ann.crawls.get("c")
    assert len(await read_samples(ann, crawl)) == 100
    await ann.crawls.stop("c")
    await ann.crawls.delete("c")
    assert not any("samples" in key for key in await fleet.keys())
    await add_samples(ann, "c", [("redirect", START)])
    assert not any("samples" in key for key in await fleet.keys())


async def test_urls_set_aside_by_limits_are_the_samples_of_their_reason(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann, f"{START}x", limits={"max_depth": 2, "max_pages_per_host": 1})
    await ann.add("c", [Visit(url=f"{START}deep", depth=3)])
    await drain(fleet, ann)
    samples = await read_samples(ann, await ann.crawls.get("c"))
    assert samples == {"depth": (f"{START}deep",), "pages per host": (f"{START}x",)}


async def test_urls_that_waited_when_a_limit_ended_the_crawl_are_samples(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann)
    await ann.crawls.end(await ann.crawls.get("c"), "max pages")
    await ann.lease()
    assert await read_samples(ann, await ann.crawls.get("c")) == {"max pages": (START,)}


async def test_a_stored_page_with_a_validator_is_shown_as_stored(fleet: Fleet) -> None:
    ann = fleet.worker()
    await start(ann)
    await ann.validators.remember("c", [(START, '"1"')])
    await drain(fleet, ann)
    assert (await ask(ann, START)).text == "It was visited and stored."
