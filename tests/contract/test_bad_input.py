"""Invalid input gets a named error with one sentence, and the store does not change."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from shoal.errors import InvalidInput, InvalidLimit, InvalidUrl, InvalidVisit, ShoalError, UnknownCrawl
from shoal.frontier import Done, Frontier
from shoal.frontier.shards import Shards
from shoal.frontier.visit_codec import MAX_EXTENSION_BYTES
from shoal.model import Lease, Limits, Outcome, OutcomeCode, Visit
from tests.contract.fleet import Fleet, paths

NAN, INF = float("nan"), float("inf")
URL = "http://a.example/"


class Desk:
    """A fleet with a crawl, something that waits and something that is leased."""

    def __init__(self, fleet: Fleet, frontier: Frontier, lease: Lease) -> None:
        self.fleet = fleet
        # Any: what is passed is wrong on purpose.
        self.frontier: Any = frontier
        self.crawls: Any = frontier.crawls
        self.hosts: Any = frontier.hosts
        self.lease = lease


Call = Callable[[Desk], Any]
Cases = dict[str, tuple[type[ShoalError], Call]]


def _with(value: Any, call: Callable[[Desk, Any], Any]) -> Call:
    return lambda desk: call(desk, value)


@pytest.fixture
async def desk(fleet: Fleet) -> Desk:
    ann = fleet.worker()
    await ann.crawls.create("c", Limits(delay_seconds=0))
    await ann.add("c", [*paths("a.example", 6), *paths("b.example", 2)])
    (lease,) = await ann.lease(visits=2, shards=[fleet.shards.of("a.example")], hosts=1)
    return Desk(fleet, ann, lease)


async def _refused(desk: Desk, cases: Cases) -> None:
    """Every case raises its error, with a sentence, and changes nothing; all that do not are named together."""
    before = await desk.fleet.state()
    wrong = []
    for name, (error, call) in cases.items():
        try:
            result = call(desk)
            if inspect.isawaitable(result):
                result = await asyncio.wait_for(result, 0.5)
        except error as raised:
            if len(str(raised).split()) < 3:
                wrong.append(f"{name}: {raised!r} is not a sentence")
        except Exception as raised:
            wrong.append(f"{name}: {raised!r} instead of {error.__name__}")
        else:
            wrong.append(f"{name}: accepted, {result!r}"[:200])
        if await desk.fleet.state() != before:
            wrong.append(f"{name}: changed the store")
            before = await desk.fleet.state()
    assert not wrong, "\n".join(wrong)
    await desk.fleet.check()


def _bag() -> dict[str, Any]:
    bag: dict[str, Any] = {}
    bag["self"] = bag
    return bag


BAD_URLS: dict[str, Any] = {
    "empty": "", "blank": "  ", "words": "not a url", "no host": "http://", "open bracket": "http://[::1/",
    "space in host": "http://a b/", "NUL": "http://a.example/\0", "NUL in host": "http://a\0.example/",
    "1 MB": "http://a.example/" + "x" * 2**20, "too long": "http://a.example/" + "x" * 8192,
    "long when encoded": "http://a.example/" + "ü" * 4000,
    "script": "javascript:alert(1)", "mail": "mailto:a@b.example",
    "file": "file:///etc/passwd", "data": "data:,x", "no scheme": "a.example/x", "relative": "/x",
    "port": "http://a.example:99999/", "IPv4": "http://1.2.3.256/", "surrogate": "http://a.example/\ud800",
    "None": None, "number": 5, "bytes": b"http://a.example/", "list": ["http://a.example/"],
}  # fmt: skip


async def test_invalid_urls_are_refused(desk: Desk) -> None:
    cases: Cases = {}
    for name, url in BAD_URLS.items():
        plain = InvalidInput if not isinstance(url, str) else InvalidUrl
        cases[name] = (plain, _with(url, lambda d, url: d.frontier.add("c", [URL + "new", url, URL + "newer"])))
        cases[f"{name}, as a visit"] = (
            InvalidUrl, _with(url, lambda d, url: d.frontier.add("c", [URL + "new", Visit(url=url)])),
        )  # fmt: skip
        cases[f"{name}, forgotten"] = (InvalidUrl, _with(url, lambda d, url: d.crawls.forget("c", [URL + "0", url])))
    await _refused(desk, cases)


async def test_hosts_that_no_name_server_resolves_are_refused(desk: Desk) -> None:
    others = [f"http://{host}/new" for host in desk.fleet.hosts(8, shard=None)]
    await _refused(desk, {
        name: (InvalidUrl, _with(url, lambda d, url: d.frontier.add("c", [*others, url])))
        for name, url in {"a dot": "http://./", "too long": f"http://{'a.' * 150}example/"}.items()
    })  # fmt: skip


def _visits(**fields: list[Any]) -> Cases:
    return {
        f"{name}, number {index}": (
            InvalidVisit,
            _with((name, value), lambda d, x: d.frontier.add("c", [URL + "new", Visit(url=URL + "x", **{x[0]: x[1]})])),
        )
        for name, values in fields.items() for index, value in enumerate(values)
    }  # fmt: skip


async def test_visits_that_cannot_be_stored_are_refused(desk: Desk) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    await _refused(
        desk,
        _visits(
            priority=["1", 1.5, NAN, True, None, 2**53, -(2**53), [1]],
            depth=["1", 1.5, -1, True, None, 2**53],
            found=["elsewhere", "", None, 5],
            method=[5, b"POST", None, "PO\ud800ST"],
            headers=[{"a": 1}, {1: "a"}, {"a": None}, [("a", "b")], "a: b", {"a": "\ud800"}],
            body=["text", 5, ["x"], bytes(MAX_EXTENSION_BYTES), bytes(2**20)],
            meta=[{"a": object()}, {"a": {1, 2}, "b": object()}, _bag(), {"a": deep}, {"a": lambda: 0}, {"a": "\ud800"},
                  [1], {"a": "x" * 2**20}],
        ),
    )  # fmt: skip


async def test_visits_with_unpackable_values_are_refused(desk: Desk) -> None:
    await _refused(desk, _visits(found=[["link"], {}], meta=[{"a": 2**64}, {"a": -(2**70)}]))


async def test_objects_that_are_not_visits_are_refused(desk: Desk) -> None:
    await _refused(desk, {
        "a dict": (InvalidVisit, lambda d: d.frontier.add("c", [{"url": URL}])),
        "a URL as the list": (InvalidUrl, lambda d: d.frontier.add("c", URL)),
        "None in the list": (InvalidVisit, lambda d: d.frontier.add("c", [URL + "new", None])),
    })  # fmt: skip


LIMITS: dict[str, list[Any]] = {
    "delay_seconds": [-1, NAN, INF, "1", None, 86401, True, []],
    "places": [0, -1, 33, 1.5, "1", None, True, NAN],
    "priority": [11, -11, 0.5, "1", None, True, NAN],
    "max_pages": [-1, 2**54, 1.5, "1", None, True, NAN, INF],
    "max_pages_per_host": [-1, 2**54, 1.5, "1", None, True],
    "max_depth": [-1, 2**54, 1.5, "1", True, NAN],
    "order": ["", "random", None, 1, ["fifo"], "FIFO"],
    "expires_at": [-1, NAN, INF, "1", None, True],
    "dedup_seconds": [-1, NAN, INF, "1", None, True],
    "spider": [None, 5, "a b", "ü", "x" * 65, "a\n", b"x", ["x"]],
}


async def test_invalid_limits_of_crawls_are_refused(desk: Desk) -> None:
    cases: Cases = {}
    for name, values in LIMITS.items():
        for value in values:
            cases[f"{name} = {str(value)[:20]!r}"] = (
                InvalidLimit, _with((name, value), lambda d, x: d.crawls.create("new", Limits(**{x[0]: x[1]}))),
            )  # fmt: skip
    for value in (-1, NAN, "1", None, INF):
        cases[f"expire at {value}"] = (InvalidLimit, _with(value, lambda d, v: d.crawls.expire("c", v)))
    await _refused(desk, cases)


async def test_invalid_ids_and_specs_of_crawls_are_refused(desk: Desk) -> None:
    cases: Cases = {}
    for name in ("", "a b", "x" * 129, "a/b", "ü", "a\0b", "a\n", None, 5, b"c", ["c"], "\ud800"):
        cases[f"create {str(name)[:20]!r}"] = (InvalidLimit, _with(name, lambda d, n: d.crawls.create(n)))
    for bad in ({"a": object()}, _bag(), [1], "text", {"a": "x" * 1_000_001}, {"a": "\ud800"}):
        cases[f"spec {str(bad)[:20]}"] = (InvalidInput, _with(bad, lambda d, b: d.crawls.create("new", None, b)))
    await _refused(desk, cases)


async def test_specs_with_unpackable_values_are_refused(desk: Desk) -> None:
    await _refused(desk, {
        "a number over 64 bits": (InvalidInput, lambda d: d.crawls.create("new", None, {"a": 2**64})),
        "limits as a dict": (InvalidInput, lambda d: d.crawls.create("new", {"delay_seconds": 1})),
        "limits as a number": (InvalidInput, lambda d: d.crawls.create("new", 5)),
    })  # fmt: skip


def _everything_with_an_id(crawl: Any) -> Cases:
    calls: dict[str, Call] = {
        "add": lambda d: d.frontier.add(crawl, [URL]), "get": lambda d: d.crawls.get(crawl),
        "known": lambda d: d.crawls.known(crawl), "pause": lambda d: d.crawls.pause(crawl),
        "resume": lambda d: d.crawls.resume(crawl), "stop": lambda d: d.crawls.stop(crawl),
        "expire": lambda d: d.crawls.expire(crawl, 5), "delete": lambda d: d.crawls.delete(crawl),
        "count": lambda d: d.crawls.count(crawl), "finished": lambda d: d.crawls.finished(crawl),
        "finish": lambda d: d.crawls.finish(crawl), "retry": lambda d: d.crawls.retry(crawl),
        "failed": lambda d: d.crawls.failed(crawl), "forget": lambda d: d.crawls.forget(crawl, [URL]),
    }  # fmt: skip
    return {f"{name} of {str(crawl)[:20]!r}": (ShoalError, call) for name, call in calls.items()}


async def test_calls_for_unknown_crawls_are_refused(desk: Desk) -> None:
    cases: Cases = {}
    for crawl in ("nobody", "", "a b", "x" * 129, "x" * 2**20, "C", "c\0", "c:*", "*"):
        cases.update(_everything_with_an_id(crawl))
    await _refused(desk, cases)
    with pytest.raises(UnknownCrawl):
        await desk.crawls.get("nobody")


async def test_crawl_ids_of_another_type_are_refused(desk: Desk) -> None:
    cases: Cases = {}
    for crawl in (None, 5, b"c", ["c"], "\ud800"):
        cases.update(_everything_with_an_id(crawl))
    await _refused(desk, cases)


async def test_a_running_crawl_cannot_be_deleted(desk: Desk) -> None:
    await _refused(desk, {
        "delete while it runs": (InvalidInput, lambda d: d.crawls.delete("c")),
    })  # fmt: skip


async def test_invalid_names_and_numbers_of_workers_are_refused(desk: Desk) -> None:
    shards = desk.fleet.shards
    cases: Cases = {}
    for name in ("a b", "x" * 65, "ü", "a\n", "a/b", "a\0"):
        cases[f"worker {name[:10]!r}"] = (InvalidLimit, _with(name, lambda d, n: Frontier(shards, worker=n)))
    for value in (0, -1, NAN, INF, 86401):
        cases[f"lease_seconds {value}"] = (InvalidLimit, _with(value, lambda d, v: Frontier(shards, lease_seconds=v)))
    await _refused(desk, cases)


async def test_invalid_options_of_a_frontier_are_refused(desk: Desk) -> None:
    shards = desk.fleet.shards
    cases: Cases = {}
    for name, value in (
        ("lease_seconds", "1"), ("lease_seconds", None), ("batch_seconds", NAN), ("batch_seconds", -1),
        ("batch_seconds", "1"), ("batch_seconds", INF), ("expiries", 0), ("expiries", 256), ("expiries", "1"),
        ("blames", 0), ("blames", 1.5), ("worker", 5), ("worker", b"ann"),
    ):  # fmt: skip
        cases[f"{name} = {value!r}"] = (
            InvalidLimit,
            _with((name, value), lambda d, x: Frontier(shards, **{x[0]: x[1]})),
        )
    await _refused(desk, cases)


async def test_invalid_arguments_of_lease_are_refused(desk: Desk) -> None:
    cases: Cases = {}
    for name in ("hosts", "visits"):
        for value in (0, -1, 1001, 1.5, "x", ""):
            cases[f"{name} {value!r}"] = (
                InvalidInput, _with((name, value), lambda d, x: d.frontier.lease(**{x[0]: x[1]}, shards=[0])),
            )  # fmt: skip
    for spiders in (("a b",), ("x" * 65,), ("ü",), ("a\0",)):
        cases[f"spiders {spiders[0][:9]!r}"] = (InvalidInput, _with(spiders, lambda d, s: d.frontier.lease(spiders=s)))
    await _refused(desk, cases)


async def test_invalid_shards_spiders_and_waits_of_lease_are_refused(desk: Desk) -> None:
    def lease(**options: Any) -> tuple[type[ShoalError], Call]:
        return InvalidInput, lambda d: d.frontier.lease(**options)

    await _refused(desk, {
        "no shards": lease(shards=[]), "shard 99": lease(shards=[99]), "shard -1": lease(shards=[-1]),
        "shard x": lease(shards=["x"]), "hosts None": lease(hosts=None), "visits None": lease(visits=None),
        "spider None": lease(spiders=(None,)), "spiders as one text": lease(spiders="books"),
        "wait nan": lease(wait_seconds=NAN), "wait x": lease(wait_seconds="x"),
    })  # fmt: skip


def _ended(*outcomes: Any, **options: Any) -> tuple[type[ShoalError], Call]:
    return InvalidInput, lambda d: d.frontier.acknowledge(d.lease, outcomes, **options)


def _coded(code: Any) -> Outcome:
    return Outcome(2, code, "", 0.0)


async def test_invalid_acknowledgements_are_refused(desk: Desk) -> None:
    outcome = Outcome(1, OutcomeCode.STORED, "", 0.0)
    await _refused(desk, {
        "unknown code": _ended(outcome, _coded("z")), "no code": _ended(outcome, _coded("")),
        "negative number": _ended(outcome, Outcome(-2, OutcomeCode.STORED, "", 0.0)),
        "retry in the past": _ended(outcome, Outcome(2, OutcomeCode.RETRY, "", -1.0)),
        "retry at nan": _ended(outcome, Outcome(2, OutcomeCode.RETRY, "", NAN)),
        "finished in the future": _ended(outcome, finished_ago_seconds=-1),
        "finished nan": _ended(outcome, finished_ago_seconds=NAN),
        "response nan": _ended(outcome, response_seconds=NAN), "response -1": _ended(outcome, response_seconds=-1),
        "delay over a day": _ended(outcome, delay_seconds=86401), "delay inf": _ended(outcome, delay_seconds=INF),
        "another token": (InvalidInput, lambda d: d.frontier.acknowledge_all(
            [Done(lease=msgspec.structs.replace(d.lease, token="no token"), outcomes=[outcome])])),
        "another host": (InvalidInput, lambda d: d.frontier.acknowledge_all(
            [Done(lease=msgspec.structs.replace(d.lease, host="a b"), outcomes=[outcome])])),
    })  # fmt: skip


async def test_acknowledgements_with_missing_or_mistyped_values_are_refused(desk: Desk) -> None:
    outcome = Outcome(1, OutcomeCode.STORED, "", 0.0)
    number: Any = 5
    await _refused(desk, {
        "no outcome": _ended(outcome, None), "finished x": _ended(outcome, finished_ago_seconds="x"),
        "a reason that is not text": _ended(outcome, Outcome(2, OutcomeCode.FAILED, number, 0.0)),
        "another shard": (InvalidInput, lambda d: d.frontier.acknowledge_all(
            [Done(lease=msgspec.structs.replace(d.lease, shard=99), outcomes=[outcome])])),
        "no lease": (InvalidInput, lambda d: d.frontier.acknowledge(None, [outcome])),
    })  # fmt: skip


async def test_a_long_reason_in_any_language_is_shortened(desk: Desk) -> None:
    visit = desk.lease.visits[0]
    await desk.frontier.acknowledge(desk.lease, [visit.failed("zurückgewiesen: " + "ä" * 80)])
    assert (await desk.crawls.count("c")).failed == 1


async def test_invalid_arguments_of_renew_release_and_reap_are_refused(desk: Desk) -> None:
    await _refused(desk, {
        "renew with -1 visits": (InvalidInput, lambda d: d.frontier.renew([d.lease], visits=-1)),
        "renew with 1001 visits": (InvalidInput, lambda d: d.frontier.renew([d.lease], visits=1001)),
        "renew with x visits": (InvalidInput, lambda d: d.frontier.renew([d.lease], visits="x")),
        "release in the future": (InvalidInput, lambda d: d.frontier.release([d.lease], finished_ago_seconds=-1)),
        "release at nan": (InvalidInput, lambda d: d.frontier.release([d.lease], finished_ago_seconds=NAN)),
        "reap with a space": (InvalidInput, lambda d: d.frontier.reap("a b")),
        "reap with a long name": (InvalidInput, lambda d: d.frontier.reap("x" * 65)),
        "reap number -1": (InvalidInput, lambda d: d.frontier.reap("ann", number=-1)),
        "reap number x": (InvalidInput, lambda d: d.frontier.reap("ann", number="x")),
    })  # fmt: skip


async def test_invalid_hosts_and_settings_of_hosts_are_refused(desk: Desk) -> None:
    cases: Cases = {}
    seconds: Any
    for host in ("", "a b", "a\0b", "x" * 9000, "[::1", "a:99999", "\ud800"):
        cases[f"host {host[:9]!r}"] = (InvalidUrl, _with(host, lambda d, h: d.hosts.block(h)))
    for seconds in (-1, NAN, INF, "1", True, 86401, []):
        cases[f"delay {seconds!r}"] = (InvalidLimit, _with(seconds, lambda d, s: d.hosts.set_delay("a.example", s)))
        cases[f"robots {seconds!r}"] = (
            InvalidLimit, _with(seconds, lambda d, s: d.hosts.set_robots("a.example", crawl_delay_seconds=s)),
        )  # fmt: skip
    for seconds in (-1, NAN, INF, "1", True, None, 31536001):
        cases[f"postpone {seconds!r}"] = (InvalidLimit, _with(seconds, lambda d, s: d.hosts.postpone("a.example", s)))
    for places in (0, -1, 33, 1.5, "1", NAN):
        cases[f"places {places!r}"] = (InvalidLimit, _with(places, lambda d, p: d.hosts.set_places("a.example", p)))
    for reason in (None, 5, b"a"):
        cases[f"block {reason!r}"] = (InvalidInput, _with(reason, lambda d, r: d.hosts.block("a.example", r)))
        cases[f"aside {reason!r}"] = (
            InvalidInput, _with(reason, lambda d, r: d.hosts.postpone("a.example", 1, reason=r)),
        )  # fmt: skip
    for failures in (-1, "x", 1.5):
        cases[f"failures {failures!r}"] = (
            InvalidInput, _with(failures, lambda d, f: d.hosts.postpone("a.example", 1, failed=True, host_failures=f)),
        )  # fmt: skip
    await _refused(desk, cases)


async def test_invalid_hosts_are_refused(desk: Desk) -> None:
    cases: Cases = {}
    for host in (None, 5, b"a.example", "a.example/b", "a.example?q", "a.example#f", "u@a.example", "http://a.example"):
        cases[f"host {host!r}"] = (InvalidInput, _with(host, lambda d, h: d.hosts.block(h)))
    cases["places True"] = (InvalidLimit, lambda d: d.hosts.set_places("a.example", True))
    await _refused(desk, cases)


async def test_invalid_numbers_of_shards_are_refused(desk: Desk) -> None:
    store = desk.fleet.store
    cases: Cases = {}
    for shards in (0, -1, 1025, 1.5, "4", NAN):
        cases[f"shards {shards!r}"] = (InvalidLimit, _with(shards, lambda d, s: Shards.found(store, "never", s)))
    await _refused(desk, cases)
    assert await store.command("EXISTS", "never{store}meta", key="never{store}meta") == 0


async def test_invalid_namespaces_are_refused(desk: Desk) -> None:
    store = desk.fleet.store
    cases: Cases = {}
    for namespace in ("", "a{b", "a{b}", "a b", "a*", "\0", None, 5):
        cases[f"namespace {namespace!r}"] = (InvalidInput, _with(namespace, lambda d, n: Shards.found(store, n, 1)))
    await _refused(desk, cases)
