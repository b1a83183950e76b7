"""add: which visits are admitted, which are not, and that every visit has a result."""

from __future__ import annotations

import pytest

from shoal.errors import CrawlEnded, UnknownCrawl
from shoal.frontier.visit_codec import MAX_EXTENSION_BYTES
from shoal.model import Added, Counts, Limits, Visit
from tests.contract.fleet import Fleet, drain, end, names, paths


async def test_a_url_is_admitted_once(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    assert (await ann.add("c", ["http://a.example/1", "http://a.example/1"])).letters == "ns"
    assert (await ann.add("c", ["http://a.example/1"])).letters == "s"
    assert await ann.crawls.count("c") == Counts(admitted=1, waiting=1)
    await fleet.check()


async def test_two_spellings_of_a_url_are_one_visit(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    added = await ann.add("c", ["http://a.example/b?q", "HTTP://A.example:80/x/../b?q#part"])
    assert added.letters == "ns"


async def test_two_crawls_do_not_share_what_they_have_seen(fleet: Fleet) -> None:
    ann = fleet.worker()
    for crawl in ("one", "two"):
        await ann.crawls.create(crawl)
        assert (await ann.add(crawl, ["http://a.example/"])).letters == "n"


async def test_results_are_in_the_order_of_the_visits(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(max_depth=3))
    hosts = fleet.hosts(6, shard=None)
    assert len({fleet.shards.of(host) for host in hosts}) > 1
    await ann.add("c", [f"http://{host}/0" for host in hosts])
    mixed: list[Visit | str] = []
    expected = ""
    for number, host in enumerate(hosts * 3):
        mixed.append(f"http://{host}/0")
        mixed.append(Visit(url=f"http://{host}/new{number}", priority=number % 2))
        mixed.append(Visit(url=f"http://{host}/deep{number}", depth=4))
        expected += "snd"
    added = await ann.add("c", mixed)
    assert added.letters == expected
    assert (added.new, added.seen, added.refused) == (18, 18, {"depth": 18})


async def test_adding_nothing_is_not_an_error(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    assert await ann.add("c", []) == Added("")


async def test_every_one_of_a_thousand_urls_in_a_call_has_a_result(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    urls = [*paths("one.example", 600), *(f"http://h{i % 7}.example/{i}" for i in range(400))]
    assert (await ann.add("c", iter(urls))).letters == "n" * 1000
    assert (await ann.add("c", urls[::-1])).letters == "s" * 1000
    assert (await ann.crawls.count("c")).waiting == 1000
    await fleet.check()


async def test_dedup_stays_exact_and_compact_while_it_grows(fleet: Fleet) -> None:
    ann = fleet.worker()
    crawl = await ann.crawls.create("c")
    (host,) = fleet.hosts(1)
    urls = paths(host, 3000)
    assert (await ann.add("c", urls)).new == 3000
    assert (await ann.add("c", urls)).seen == 3000
    state = await fleet.state()
    sets = {name: members for name, members in state.items() if f"}}s:{crawl.key}:" in name}
    assert sum(len(members) for members in sets.values()) == 3000
    assert len(sets) >= 15
    for name in sets:
        assert await fleet.store.command("OBJECT", "ENCODING", name, key=name) == b"intset"


async def test_force_admits_a_url_that_was_seen(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    await ann.add("c", ["http://a.example/1"])
    await end(ann, await ann.lease())
    assert (await ann.add("c", ["http://a.example/1"], force=True)).letters == "n"
    assert await ann.crawls.count("c") == Counts(admitted=2, waiting=1, stored=1)
    await fleet.check()


async def test_a_url_beyond_the_depth_limit_is_not_marked_seen(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(max_depth=2))
    assert (await ann.add("c", [Visit(url="http://a.example/1", depth=3)])).letters == "d"
    assert await ann.crawls.count("c") == Counts()
    assert (await ann.add("c", [Visit(url="http://a.example/1", depth=2)])).letters == "n"


async def test_depth_zero_admits_seeds_only(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(max_depth=0))
    added = await ann.add("c", [Visit(url="http://a.example/1"), Visit(url="http://a.example/2", depth=1)])
    assert added.letters == "nd"


async def test_a_url_beyond_the_pages_per_host_is_not_marked_seen(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0, max_pages_per_host=2))
    await ann.add("c", paths("a.example", 2))
    assert len(await end(ann, await ann.lease())) == 2
    assert (await ann.add("c", ["http://a.example/9", "http://b.example/9"])).letters == "hn"
    assert await ann.crawls.forget("c", ["http://a.example/9"]) == 0
    assert await ann.crawls.forget("c", ["http://b.example/9"]) == 1


async def test_pages_per_host_counts_stored_pages_only(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0, max_pages_per_host=3))
    await ann.add("c", paths("a.example", 10))
    made = 0
    while leases := await ann.lease(visits=2):
        for lease in leases:
            outcomes = [v.failed("broken") if v.url.endswith(("0", "1")) else v.stored() for v in lease.visits]
            await ann.acknowledge(lease, outcomes)
            made += len(outcomes)
    counts = await ann.crawls.count("c")
    assert (counts.stored, counts.failed, counts.excluded) == (3, 2, 5)
    assert counts.reasons == {"failed:broken": 2, "excluded:pages per host": 5}
    assert made == 5
    await fleet.check()


async def test_a_blocked_host_accepts_no_urls(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    await ann.hosts.block("a.example", "asked us to stop")
    assert (await ann.add("c", ["http://a.example/1", "http://b.example/1"])).letters == "bn"
    await ann.hosts.unblock("a.example")
    assert (await ann.add("c", ["http://a.example/1"])).letters == "n"


async def test_only_a_known_crawl_accepts_urls(fleet: Fleet) -> None:
    with pytest.raises(UnknownCrawl, match="no crawl 'nobody'"):
        await fleet.worker().add("nobody", ["http://a.example/"])


async def test_an_ended_crawl_accepts_no_urls(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c")
    await bob.add("c", ["http://a.example/1"])
    await ann.crawls.stop("c")
    for frontier in (ann, bob):
        with pytest.raises(CrawlEnded, match="stopped"):
            await frontier.add("c", ["http://a.example/2"])
        # A shard that has never met the crawl does not take it either.
        with pytest.raises(CrawlEnded, match="stopped"):
            await frontier.add("c", [f"http://{host}/" for host in fleet.hosts(8, shard=None)])
    await fleet.check()


async def test_a_visit_is_leased_as_it_was_added(fleet: Fleet) -> None:
    ann, bob = fleet.worker(), fleet.worker("bob")
    await ann.crawls.create("c", Limits(delay_seconds=0))
    visits = [
        Visit(url="https://a.example:8443/p?q=ü", depth=300, priority=-7, found="sitemap"),
        Visit(
            url="https://user:word@a.example./form",
            method="POST",
            headers={"Content-Type": "text/plain", "X": "é"},
            body=b"\x00\xff body",
            meta={"list": [1, 2.5, None, {"deep": "er"}], "flag": True},
            priority=3,
            found="spider",
        ),
        Visit(url="ftp://[2001:db8::1]/file", found="seed"),
    ]
    await ann.add("c", visits)
    made = await end(bob, await bob.lease(visits=50))
    by_url = {visit.url: visit for visit in made}
    for visit in visits:
        url = visit.url.replace("ü", "%C3%BC")
        out = by_url[url]
        for name in ("depth", "priority", "found", "method", "headers", "body", "meta"):
            assert getattr(out, name) == getattr(visit, name), name
        assert (out.crawl, out.retries, out.expiries, out.blames) == ("c", 0, 0, 0)


async def test_requests_differ_by_method_and_body(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    url = "http://a.example/form"
    visits = [
        Visit(url=url),
        Visit(url=url, method="POST", body=b"one"),
        Visit(url=url, method="POST", body=b"two"),
        Visit(url=url, method="POST", body=b"one", headers={"X": "1"}, meta={"a": 1}),
        Visit(url=url, method="HEAD"),
        Visit(url=url, headers={"X": "1"}),
    ]
    assert (await ann.add("c", visits)).letters == "nnnsns"


async def test_a_visit_may_be_as_large_as_the_limit(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c")
    body = bytes(MAX_EXTENSION_BYTES - 100)
    assert (await ann.add("c", [Visit(url="http://a.example/", method="PUT", body=body)])).new == 1
    (visit,) = await end(ann, await ann.lease())
    assert (visit.method, visit.body) == ("PUT", body)


async def test_the_65th_priority_of_a_host_joins_the_next_lower(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", [Visit(url=f"http://a.example/{p}", priority=p) for p in range(0, 640, 10)])
    await ann.add("c", [Visit(url="http://a.example/late", priority=315)])
    await ann.add("c", [Visit(url="http://a.example/least", priority=-5)])
    await fleet.check()
    made = await end(ann, await ann.lease(visits=100))
    assert len(made) == 66
    order = names(made)
    assert order.index("late") == order.index("310") + 1
    assert made[order.index("late")].priority == 310
    assert order[-2:] == ["0", "least"]


async def test_urls_per_depth_are_counted_for_each_host_and_depth_and_not_for_seeds(fleet: Fleet) -> None:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0, max_urls_per_depth=2))
    assert (await ann.add("c", paths("a.example", 5))).letters == "nnnnn"

    def at(depth: int, *numbers: int, host: str = "a.example") -> list[Visit]:
        return [Visit(url=f"http://{host}/{depth}-{number}", depth=depth) for number in numbers]

    assert (await ann.add("c", at(1, 1, 2, 3))).letters == "nnl"
    # A URL that the crawl already has does not exceed the limit, and a refused one was not marked seen.
    assert (await ann.add("c", at(1, 3, 2, 4, 1))).letters == "lsls"
    assert (await ann.add("c", [*at(2, 1), *at(1, 1, host="b.example")])).letters == "nn"
    assert (await ann.add("c", at(2, 2, 3))).letters == "nl"
    counts = await ann.crawls.count("c")
    assert counts.admitted == 5 + 2 + 1 + 2
    await fleet.check()
    assert len(await drain(fleet, ann)) == counts.admitted
    assert await ann.crawls.finish("c")
