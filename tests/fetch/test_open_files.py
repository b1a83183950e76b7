"""A machine that has no files left for connections: requests wait, no host is blamed and no page fails."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from tests.site.hostile import Hostile, Talk, ok

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


async def _slow(talk: Talk) -> None:
    await asyncio.sleep(0.05)
    await talk.say(ok(b"a page"))


@pytest.mark.skipif(sys.platform != "linux", reason="counts its open files in /proc")
@pytest.mark.parametrize(("when", "warnings"), [("before", 0), ("after", 1)])
async def test_requests_wait_for_open_files_and_none_fails(when, warnings):
    async with Hostile({"*": _slow}) as site:
        command = [sys.executable, "-c", _PROGRAM, site.url("/"), when]
        program = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        said, _ = await program.communicate()
    result = json.loads(said)
    assert (result["stored"], result["failures"]) == (100, [])
    assert len(result["warnings"]) == warnings
    assert all("limit of open files" in text for text in result["warnings"])
