"""No connection to a forbidden address: a listener proves that none is opened."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import pytest

from shoal.fetch import Fetcher, Request
from shoal.fetch.dns import OriginCache
from shoal.politeness.backoff import Fault
from shoal.settings import FetchSettings
from tests.fetch.failure import failure
from tests.site.hostile import Hostile, keep, ok

HERE = {"*": ok(b"inside")}


class Resolver:
    """Returns one result after the other, as the name server of an attacker does. The last one is repeated."""

    def __init__(self, *lookups: Sequence[str]) -> None:
        self.lookups = list(lookups)
        self.looked_up: list[str] = []

    async def __call__(self, host: str) -> Sequence[str]:
        self.looked_up.append(host)
        return self.lookups.pop(0) if len(self.lookups) > 1 else self.lookups[0]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "127.0.0.1.",
        "%31%32%37.0.0.1",
        "127。0。0。1",
        "[::ffff:7f00:1]",
        "[::ffff:127.0.0.1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "0.0.0.0",
        "0",
        "localhost",
        "LOCALHOST.",
        "x.localhost",
    ],
)
async def test_no_request_is_sent_to_loopback_in_any_spelling(host):
    fetcher = Fetcher(FetchSettings(), resolver=Resolver(["127.0.0.1"]))
    async with Hostile(HERE) as site:
        error = await failure(fetcher, site.url(host=host))
        assert error.fault == Fault.FORBIDDEN_ADDRESS
        assert error.reason in ("forbidden address: loopback", "forbidden address: unspecified")
        assert site.connections == 0
        await fetcher.close()


async def test_no_request_is_sent_to_loopback_over_ipv6():
    fetcher = Fetcher(FetchSettings(allow_networks="127.0.0.0/8"))
    async with Hostile(HERE, address="::1") as site:
        assert (await failure(fetcher, site.url())).fault == Fault.FORBIDDEN_ADDRESS
        assert site.connections == 0
        await fetcher.close()


async def test_no_request_is_sent_to_a_name_that_resolves_to_a_private_address():
    fetcher = Fetcher(FetchSettings(), resolver=Resolver(["127.0.0.1"]))
    async with Hostile(HERE) as site:
        error = await failure(fetcher, site.url(host="harmless.test"))
        assert (error.fault, error.reason) == (Fault.FORBIDDEN_ADDRESS, "forbidden address: loopback")
        assert "fetch.allow_networks" in str(error)
        assert site.connections == 0
        await fetcher.close()


@pytest.mark.parametrize("addresses", [["127.0.0.2", "127.0.0.1"], ["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "::1"]])
async def test_a_name_with_public_and_private_addresses_is_refused(addresses):
    fetcher = Fetcher(FetchSettings(allow_networks="127.0.0.2"), resolver=Resolver(addresses))
    async with Hostile(HERE, address="127.0.0.2") as site:
        assert (await failure(fetcher, site.url(host="mixed.test"))).fault == Fault.FORBIDDEN_ADDRESS
        assert site.connections == 0
        await fetcher.close()


async def test_a_name_that_moves_to_a_private_address_between_requests_is_refused():
    names = Resolver(["127.0.0.2"], ["127.0.0.1"])
    fetcher = Fetcher(FetchSettings(allow_networks="127.0.0.2"), resolver=names)
    async with (
        Hostile({"*": ok(b"outside")}, address="127.0.0.2") as outside,
        Hostile(HERE, port=outside.port) as inside,
    ):
        url = outside.url(host="rebinding.test")
        assert (await fetcher.fetch(Request(url=url))).body == b"outside"
        fetcher._names.origin(url[:-1]).forget()  # five minutes later
        assert (await failure(fetcher, url)).fault == Fault.FORBIDDEN_ADDRESS
        assert names.looked_up == ["rebinding.test"] * 2
        assert (outside.connections, inside.connections) == (1, 0)
        await fetcher.close()


async def test_a_forbidden_address_is_refused_at_the_socket_even_if_the_name_was_allowed(monkeypatch):
    """The second check alone: the address that libcurl connects to is checked, whatever its source."""
    monkeypatch.setattr(OriginCache, "check", lambda self, origin: None)
    fetcher = Fetcher(FetchSettings(allow_networks="127.0.0.2"), resolver=Resolver(["127.0.0.1", "127.0.0.2"]))
    async with Hostile(HERE) as inside:
        for host in ("name.test", "127.0.0.1"):
            error = await failure(fetcher, inside.url(host=host))
            assert (error.fault, error.reason) == (Fault.FORBIDDEN_ADDRESS, "forbidden address: loopback")
        assert inside.connections == 0
        await fetcher.close()


@pytest.mark.parametrize("port", [22, 3306, 6379])
async def test_the_port_of_a_daemon_is_refused_before_connecting(fetcher, port):
    error = await failure(fetcher, f"http://127.0.0.1:{port}/")
    assert (error.fault, error.reason) == (Fault.FORBIDDEN_ADDRESS, "forbidden address: port")


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "gopher://127.0.0.1:70/_x", "ftp://127.0.0.1/", "dict://127.0.0.1:11211/", "javascript:1"],
)
async def test_only_http_is_fetched(fetcher, url):
    error = await failure(fetcher, url)
    assert (error.fault, error.reason) == (Fault.ABORTED, "bad url")


@pytest.mark.parametrize("url", ["", "http://", "http://a b/", "//x/", "http://[::1", "http://a:99999/", "http://\0/"])
async def test_an_invalid_url_fails_with_one_sentence(fetcher, url):
    error = await failure(fetcher, url)
    assert (error.fault, error.reason) == (Fault.ABORTED, "bad url")


@pytest.mark.parametrize("location", ["http://127.0.0.1:{port}/b", "file:///etc/passwd", "gopher://127.0.0.1/"])
async def test_a_redirect_is_a_response_and_is_not_followed(fetcher, location):
    async with Hostile({}) as site:
        location = location.format(port=site.port)
        site.replies["/a"] = ok(b"", f"Location: {location}", status="302 Found")
        page = await fetcher.fetch(Request(url=site.url("/a")))
        assert (page.status, page.header("location")) == (302, location)
        assert len(site.requests) == 1


async def test_an_open_connection_is_not_used_for_another_name(fetcher):
    """Two names with one address are two origins."""
    two = Fetcher(FetchSettings(allow_networks="127.0.0.0/8"), resolver=Resolver(["127.0.0.1"]))
    async with Hostile({"*": keep(ok(b"x"))}) as site:
        for host in ("a.test", "b.test", "a.test", "b.test"):
            await two.fetch(Request(url=site.url(host=host)))
        assert site.connections == 2
        await two.close()


async def test_names_are_looked_up_once_for_many_requests():
    names = Resolver(["127.0.0.1"])
    fetcher = Fetcher(FetchSettings(allow_networks="127.0.0.0/8"), resolver=names)
    async with Hostile({"*": keep(ok(b"x"))}) as site:
        await asyncio.gather(*(fetcher.fetch(Request(url=site.url(f"/{n}", host="a.test"))) for n in range(20)))
        await fetcher.fetch(Request(url=site.url(host="a.test")))
        assert names.looked_up == ["a.test"]
    assert (await failure(fetcher, site.url(host="a.test"))).fault == Fault.REFUSED
    assert (await failure(fetcher, site.url(host="a.test"))).fault == Fault.REFUSED
    assert names.looked_up == ["a.test"] * 2, "a failed connection resolves the name again"
    await fetcher.close()


@pytest.mark.parametrize(
    "host", ["site.test", "site.test.", "SITE.test", "a_b.test", "bücher.test", "xn--bcher-kva.test"]
)
async def test_libcurl_connects_to_the_resolved_address_and_resolves_nothing_itself(host):
    names = Resolver(["127.0.0.3", "127.0.0.2"])
    fetcher = Fetcher(FetchSettings(allow_networks="127.0.0.0/8"), resolver=names)
    async with Hostile(HERE, address="127.0.0.2") as site:
        page = await fetcher.fetch(Request(url=site.url(host=host)))
        assert (page.body, page.address) == (b"inside", "127.0.0.2"), "the second address when the first is dead"
        assert len(names.looked_up) == 1
        assert 0 < page.timings.name_lookup <= page.timings.connect
        await fetcher.close()


async def test_an_abandoned_lookup_ends_with_the_fetcher():
    async def never(host: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    fetcher = Fetcher(FetchSettings(), resolver=never)
    task = asyncio.create_task(fetcher.fetch(Request(url="http://slow.test/")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await fetcher.close()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_name_without_an_address_is_unresolved():
    async def none(host: str) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def not_now(host: str) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    for resolver, reason in ((none, "unknown host"), (Resolver([]), "unknown host"), (not_now, "lookup failed")):
        fetcher = Fetcher(FetchSettings(), resolver=resolver)
        error = await failure(fetcher, "http://nowhere.test/")
        fault = Fault.UNRESOLVED if reason == "lookup failed" else Fault.UNKNOWN_HOST
        assert (error.fault, error.reason) == (fault, reason)
        await fetcher.close()


async def test_a_lookup_at_a_silent_name_server_ends_at_the_deadline():
    async def never(host: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    fetcher = Fetcher(FetchSettings(), resolver=never)
    error = await failure(fetcher, "http://slow.test/", timeout_seconds=0.2)
    assert (error.fault, error.reason) == (Fault.UNRESOLVED, "lookup timed out")
    await fetcher.close()


async def test_the_systems_resolver_finds_localhost_and_refuses_bad_names(fetcher):
    async with Hostile(HERE) as site:
        assert (await fetcher.fetch(Request(url=site.url(host="localhost")))).body == b"inside"
    assert (await failure(fetcher, f"http://{'a' * 64}.test/")).fault == Fault.UNKNOWN_HOST
    assert (await failure(fetcher, "http://a..test/")).fault == Fault.UNKNOWN_HOST
