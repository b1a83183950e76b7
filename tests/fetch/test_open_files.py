"""A machine without free file descriptors: requests wait, no host is blamed and no page fails."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from shoal.errors import FetchError
from shoal.fetch import Fetcher, Request
from shoal.frontier import mono
from shoal.leases.held_lease import HeldLease
from shoal.model.lease import Lease
from shoal.settings import FetchSettings
from shoal.worker.leased_fetch import fetch_under_lease
from tests.site.hostile import Connection, Hostile, ok

# Opens up to 100 connections at once with room for few. The limit falls before or after the fetcher has looked at it.
_PROGRAM = """
import asyncio, json, os, resource, sys
from shoal.errors import FetchError
from shoal.fetch import Fetcher, Request
from shoal.settings import FetchSettings

def limit():
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, used + 20))

async def main(url, when):
    if when == "before":
        limit()
    warnings, failures = [], []
    fetcher = Fetcher(FetchSettings(allow_networks="127.0.0.0/8"), on_warning=warnings.append)
    if when == "after":
        limit()
    async def one(number):
        try:
            return (await fetcher.fetch(Request(url=f"{url}?{number}"))).status
        except FetchError as error:
            failures.append(error.reason)
    statuses = await asyncio.gather(*(one(number) for number in range(100)))
    await fetcher.close()
    print(json.dumps({"stored": statuses.count(200), "failures": failures, "warnings": warnings}))

asyncio.run(main(*sys.argv[1:]))
"""


# Looks a name up while no file is left, not even for the resolver's configuration.
_LOOKUP = """
import asyncio, json, resource, sys
from shoal.fetch import Fetcher, Request
from shoal.settings import FetchSettings

async def main(url):
    warned = asyncio.Event()
    fetcher = Fetcher(FetchSettings(allow_networks="127.0.0.0/8"), on_warning=lambda text: warned.set())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    fetching = asyncio.create_task(fetcher.fetch(Request(url=url)))
    addressing = asyncio.create_task(fetcher.address(url))
    await asyncio.wait({fetching, addressing, asyncio.create_task(warned.wait())}, return_when=asyncio.FIRST_COMPLETED)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(json.dumps({"status": (await fetching).status, "address": await addressing, "warned": warned.is_set()}))
    await fetcher.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def _slow(connection: Connection) -> None:
    await asyncio.sleep(0.05)
    await connection.send(ok(b"a page"))


@pytest.mark.skipif(sys.platform != "linux", reason="counts its open files in /proc")
@pytest.mark.parametrize(("when", "warnings"), [("before", 0), ("after", 1)])
async def test_requests_wait_for_open_files_and_none_fails(when, warnings):
    async with Hostile({"*": _slow}) as site:
        command = [sys.executable, "-c", _PROGRAM, site.url("/"), when]
        program = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        output, _ = await program.communicate()
    result = json.loads(output)
    assert (result["stored"], result["failures"]) == (100, [])
    assert len(result["warnings"]) == warnings
    assert all("limit of open files" in text for text in result["warnings"])


async def test_a_lookup_without_free_file_descriptors_is_not_unresolved():
    async with Hostile({"*": _slow}) as site:
        command = [sys.executable, "-c", _LOOKUP, site.url("/", host="localhost")]
        program = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        output, _ = await program.communicate()
    assert json.loads(output) == {"status": 200, "address": "127.0.0.1", "warned": True}


async def test_a_request_that_waits_for_a_connection_is_not_sent_after_its_lease_ends(monkeypatch):
    """Requests of other hosts use all connections that the limit of open files allows."""
    monkeypatch.setattr("shoal.fetch.fetcher.connection_limit", lambda connections: 1)
    fetcher = Fetcher(FetchSettings(allow_networks="127.0.0.0/8"))
    other_ends = asyncio.Event()

    async def busy(connection: Connection) -> None:
        await other_ends.wait()
        await connection.send(ok(b"late"))

    async with Hostile({"/busy": busy, "*": _slow}) as site:
        other = asyncio.create_task(fetcher.fetch(Request(url=site.url("/busy"))))
        await site.requested.wait()
        lease = HeldLease(
            Lease(token="t", shard=0, host="h", delay_seconds=0.0, epoch=1, trusted_until_mono=mono() + 1, visits=())
        )
        with pytest.raises(FetchError, match="the lease of its host expired"):
            await fetch_under_lease(lease, fetcher, Request(url=site.url("/late"), timeout_seconds=0.5))
        other_ends.set()
        assert (await other).status == 200
        assert not [request for request in site.requests if b"/late" in request]
        await fetcher.close()
