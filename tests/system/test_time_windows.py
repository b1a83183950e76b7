"""Time windows: the maintainer or the command pauses a crawl outside of them and resumes it inside."""

from __future__ import annotations

import datetime
import signal

import pytest

from shoal.errors import InvalidLimit
from shoal.frontier import Frontier
from shoal.model.crawl import State
from shoal.model.crawl_spec import CrawlSpec
from shoal.operations.time_windows import keep_to_windows, time_windows_of
from tests.site.responses import page
from tests.site.site import Site
from tests.system.shell import Shell


def _at(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("between", "moment", "is_open", "opens_at"),
    [
        ("22:00-06:00 UTC", "2026-11-17T21:59:59+00:00", False, "22:00"),
        ("22:00-06:00 UTC", "2026-11-17T22:00:00+00:00", True, "22:00"),
        ("22:00-06:00 UTC", "2026-11-18T05:59:59+00:00", True, "22:00"),
        ("22:00-06:00 UTC", "2026-11-18T06:00:00+00:00", False, "22:00"),
        ("9:30-12:00,13:00-24:00 UTC", "2026-11-18T12:30:00+00:00", False, "13:00"),
        ("9:30-12:00,13:00-24:00 UTC", "2026-11-18T23:59:00+00:00", True, "09:30"),
        ("22:00-06:00 Europe/Berlin", "2026-11-17T21:30:00+00:00", True, "22:00"),
        ("22:00-06:00 Europe/Berlin", "2026-07-17T20:30:00+00:00", True, "22:00"),
        ("22:00-06:00 Europe/Berlin", "2026-11-17T20:30:00+00:00", False, "22:00"),
    ],
)  # fmt: skip
def test_a_window_is_open_from_its_start_to_its_end(between: str, moment: str, is_open: bool, opens_at: str) -> None:
    schedule = time_windows_of(between)
    assert schedule is not None
    assert schedule.is_open(_at(moment)) is is_open
    assert schedule.opens_at(_at(moment)) == opens_at


@pytest.mark.parametrize("text", ["22", "22:00", "22:00-22:00", "25:00-26:00", "22:60-23:00", "22:00-06:00 Nowhere/X"])
def test_an_invalid_time_of_day_is_refused_with_an_example(text: str, shell: Shell) -> None:
    with pytest.raises(InvalidLimit, match="between is"):
        time_windows_of(text)
    result = shell.call("crawl", "http://a.example/", "--between", text)
    assert result.code == 2
    assert "between is" in result.err


async def test_a_crawl_is_paused_and_resumed_by_the_stores_clock(tmp_path: object) -> None:
    async with await Frontier.open(folder=f"{tmp_path}/s") as frontier:
        now = [int(_at("2026-11-17T12:00:00+00:00") * 1000)]
        frontier.shards.clock_ms = lambda: now[0]
        spec = CrawlSpec(seeds=("http://a.example/",), between="22:00-06:00 UTC").stored()
        await frontier.crawls.create("c", spec=spec)
        for hour, state in ((12, State.PAUSED), (21, State.PAUSED), (22, State.RUNNING), (23, State.RUNNING)):
            now[0] = int(_at(f"2026-11-17T{hour}:00:01+00:00") * 1000)
            await keep_to_windows(frontier, await frontier.crawls.get("c"))
            assert (await frontier.crawls.get("c")).state is state
        # Who pauses it by hand decides.
        await frontier.crawls.pause("c")
        await keep_to_windows(frontier, await frontier.crawls.get("c"))
        crawl = await frontier.crawls.get("c")
        assert (crawl.state, crawl.why) == (State.PAUSED, "")


@pytest.mark.full
def test_a_crawl_sends_nothing_outside_of_its_time_window(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a"))
    site.at(host, "/a", page())
    now = datetime.datetime.now(datetime.UTC)
    later, end = (f"{(now + datetime.timedelta(hours=hours)):%H}:00" for hours in (3, 5))
    running = shell.start(
        "crawl", f"http://{host}/", "--name", "n", "--delay", "0", "--between", f"{later}-{end} UTC",
        "--allow-network", "127.0.0.0/8",
    )  # fmt: skip
    running.wait_for_output(f"Crawl n waits until {later} (--between).")
    assert site.requests(host) == []
    assert running.end(signal.SIGINT).code == 130
    assert site.requests(host) == []
