"""`shoal dump` and `shoal load`: a crawl resumes in another store as if it had started there."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
from pathlib import Path

import pytest

from shoal import Frontier
from shoal.model import Limits
from tests.proxy import proxy
from tests.servers import server, wait_until
from tests.site.site import Site
from tests.system.shell import LOCAL, Shell

pytestmark = pytest.mark.full


def filled(url: str, urls: int = 30, *, folder: str = ".shoal") -> None:
    """A store with a crawl `far` of which nothing was visited."""

    async def fill() -> None:
        async with await Frontier.open(url, folder=folder) as frontier:
            await frontier.crawls.create("far", Limits(delay_seconds=1), {"seeds": []})
            await frontier.add("far", [f"http://h{n % 7}.example/{n}" for n in range(urls)])

    asyncio.run(fill())


def shards_of(url: str) -> int:
    async def ask() -> int:
        async with await Frontier.open(url) as frontier:
            return frontier.shards.count

    return asyncio.run(ask())


def test_an_interrupted_crawl_is_resumed_in_another_store(site: Site, shell: Shell, tmp_path: Path) -> None:
    (host,) = site.take()
    tree = site.plant(60, [host])
    running = shell.start("crawl", tree.url(0), *LOCAL, "--delay", "0.05", "--name", "far")
    wait_until(lambda: len(site.requests(host)) > 10, "it runs")
    assert running.end(signal.SIGINT).code == 130
    result = shell.run("dump", "far.dump")
    assert result.code == 0, result.err
    assert result.out == ""
    assert "Dumped 1 crawl in " in result.err
    with server(tmp_path / "server") as valkey:
        result = shell.run("load", "far.dump", "--store", valkey.url, "--shards", 3)
        assert result.code == 0, result.err
        assert shards_of(valkey.url) == 3
        before, after = shell.counts("far"), shell.counts("far", "--store", valkey.url)
        assert 0 < after["counts"]["stored"] < 60
        for name in ("state", "counts", "limits", "policy", "created_at", "bytes"):
            assert after[name] == before[name]
        result = shell.crawl("--name", "far", "--store", valkey.url)
        assert result.code == 0, result.err
        assert shell.counts("far", "--store", valkey.url)["counts"]["stored"] == 60
    assert len(shell.rows()) == 60
    pages = [request.path for request in site.requests(host) if request.path != "/robots.txt"]
    assert len(pages) == len(set(pages)), "a page was fetched in both stores"


@pytest.mark.smoke
def test_a_dump_can_be_piped(shell: Shell, tmp_path: Path) -> None:
    filled("", folder=str(shell.folder / ".shoal"))
    dumped = shell.run("dump")
    assert dumped.code == 0, dumped.err
    lines = [json.loads(line) for line in dumped.out.splitlines()]
    assert lines[-1] == {"end": len(lines) - 1}
    result = shell.run("load", "--folder", "other", stdin=dumped.out)
    assert result.code == 0, result.err
    assert "Loaded; 30 URLs are waiting." in result.err
    assert shell.counts("far", "--folder", "other")["counts"]["waiting"] == 30
    wait_until(lambda: not (shell.folder / "other/store/socket").exists(), "the other embedded store stops")


def test_a_dump_is_readable_only_by_its_owner_and_overwrites_nothing(shell: Shell, tmp_path: Path) -> None:
    with server(tmp_path / "server") as valkey:
        filled(valkey.url)
        (shell.folder / "mine").write_text("mine")
        result = shell.run("dump", "mine", "--store", valkey.url)
        assert result.code == 2
        assert "The file mine already exists; choose another one, or pass --force." in result.err
        assert (shell.folder / "mine").read_text() == "mine"
        assert shell.run("dump", "mine", "--store", valkey.url, "--force").code == 0
        assert stat.S_IMODE((shell.folder / "mine").stat().st_mode) == 0o600
        assert (shell.folder / "mine").read_text().startswith('{"frontier":1')
        assert {path.name for path in shell.folder.iterdir()} == {"mine", "server"}


def test_a_store_that_has_crawls_is_not_loaded_into(shell: Shell, tmp_path: Path) -> None:
    with server(tmp_path / "server") as valkey:
        filled(valkey.url)
        assert shell.run("dump", "d", "--store", valkey.url).code == 0
        result = shell.run("load", "d", "--store", valkey.url)
        assert result.code == 1
        assert result.err == "shoal: Namespace 'shoal' has crawls already: load into an empty one.\n"
        result = shell.run("load", "d", "--store", valkey.url, "--shards", 2)
        assert result.code == 1
        assert "has 16 shards already, not 2" in result.err
        assert shell.counts("far", "--store", valkey.url)["counts"]["waiting"] == 30


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_an_interrupted_dump_lets_the_workers_continue_at_once(shell: Shell, tmp_path: Path, how: int) -> None:
    with server(tmp_path / "server") as valkey:
        await asyncio.to_thread(filled, valkey.url)

        def frozen() -> list[bytes]:
            metas = valkey.ask("KEYS", "shoal{*}meta")
            return [key for key in metas if valkey.ask("HEXISTS", key, "frozen")]

        async with proxy(valkey.port) as slow:
            # The dump takes many calls, so it is not done before the signal arrives.
            slow.delay_seconds = 0.5
            # In the background of a shell, Ctrl-C is ignored, but not SIGTERM.
            before = signal.signal(
                signal.SIGINT, signal.SIG_IGN if how == signal.SIGTERM else signal.default_int_handler
            )
            running = shell.start("dump", "d", "--store", f"redis://127.0.0.1:{slow.port}/0")
            signal.signal(signal.SIGINT, before)
            await asyncio.to_thread(wait_until, frozen, "it is dumped")
            result = await asyncio.to_thread(running.end, how)
        assert result.code == 130, result.err
        assert result.err.strip() == "shoal: Interrupted."
        assert frozen() == []
        assert {path.name for path in shell.folder.iterdir()} == {"server"}, "half a dump is left"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is truncated"),
        ("not a dump\n", "is truncated"),
        ('{"frontier": 1, "seed": 5, "now_ms": 7}\n', "is truncated; nothing was loaded"),
        ('["frontie"]\n{"end": 1}\n', "The first line is not the first line of a dump"),
        ('\ufffd\n{"end": 1}\n', "The first line is not the first line of a dump"),
    ],
)
def test_an_incomplete_dump_creates_no_store(shell: Shell, text: str, sentence: str) -> None:
    (shell.folder / "d").write_text(text)
    result = shell.run("load", "d")
    assert result.code == 2, result.err
    assert len(result.err.splitlines()) == 1, result.err
    assert sentence in result.err
    assert [path.name for path in shell.folder.iterdir()] == ["d"]
    result = shell.run("load", "missing")
    assert result.code == 2
    assert "Cannot read the dump missing: No such file or directory." in result.err


def test_a_broken_pipe_is_reported(shell: Shell, tmp_path: Path) -> None:
    with server(tmp_path / "server") as valkey:
        filled(valkey.url)
        lines = shell.run("dump", "--store", valkey.url).out.splitlines(keepends=True)
        valkey.ask("FLUSHALL")
        result = shell.run("load", "-", "--store", valkey.url, stdin="".join(lines[:-1]))
        assert result.code == 2
        assert "The dump is truncated" in result.err


def test_dumping_creates_no_store(shell: Shell) -> None:
    result = shell.run("dump", "d")
    assert result.code == 1
    assert "No store found in .shoal" in result.err
    assert list(shell.folder.iterdir()) == []
