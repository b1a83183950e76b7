"""`--seeds` with more URLs than fit in memory or can be read before the crawl starts."""

from __future__ import annotations

import gzip
import os
import re
import signal
from pathlib import Path
from typing import IO

import pytest

from tests.servers import wait_until
from tests.site.responses import page
from tests.site.site import Site
from tests.system.shell import LOCAL, Shell

pytestmark = pytest.mark.full


def lines(hosts: list[str], count: int) -> list[str]:
    return [f"http://{hosts[number % len(hosts)]}/{number}\n" for number in range(count)]


def admitted(shell: Shell, crawl: str) -> int:
    counts: dict[str, int] = shell.counts(crawl)["counts"]
    return counts["admitted"]


def poured(shell: Shell, text: list[str]) -> IO[str]:
    """The end of a pipe that the command reads: it gets these lines, and no end until this is closed."""
    pipe = (shell.folder / "pipe").open("w")
    pipe.writelines(text)
    pipe.flush()
    return pipe


@pytest.mark.chaos
def test_a_command_killed_while_reading_seeds_gets_the_rest_when_it_is_repeated(site: Site, shell: Shell) -> None:
    hosts = site.take(20)
    seeds = lines(hosts, 6000)
    os.mkfifo(shell.folder / "pipe")
    typed = ("crawl", "--seeds", "pipe", "--name", "many", "--delay", "2", "--no-follow", *LOCAL)
    running = shell.start(*typed)
    pipe = poured(shell, seeds[:3500])
    # The first are visited while others are still to come.
    wait_until(lambda: len(site.requests(*hosts)) > len(hosts), "pages are requested")
    wait_until(lambda: admitted(shell, "many") == 3000, "whole batches are added")
    running.kill_all()
    pipe.close()
    # Without the file nothing is added, and the command reports it.
    running = shell.start("crawl", "--name", "many", *LOCAL)
    running.wait_for_output("Crawl many was interrupted before all of its seeds were read; pass --seeds again.")
    assert running.end(signal.SIGINT).code == 130
    assert admitted(shell, "many") == 3000
    running = shell.start(*typed)
    poured(shell, seeds).close()
    wait_until(lambda: admitted(shell, "many") == 6000, "all of them are added")
    result = running.end(signal.SIGINT)
    assert result.code == 130, result.err
    # All was read: the name is enough from here on.
    assert re.search(r"Resume with: shoal crawl --name many --allow-network \S+$", result.err, re.M)
    assert not site.judge(*hosts).impolite(2)


def test_a_silent_pipe_of_seeds_delays_neither_the_crawl_nor_its_end(site: Site, shell: Shell) -> None:
    hosts = site.take(5)
    os.mkfifo(shell.folder / "pipe")
    running = shell.start("crawl", "--seeds", "pipe", "--name", "slow", "--delay", "0", "--no-follow", *LOCAL)
    pipe = poured(shell, lines(hosts, 1100))
    running.wait_for_output("Starting crawl slow")
    wait_until(lambda: shell.counts("slow")["counts"]["failed"] == 1000, "the first are visited")
    # More may come: it is not over.
    assert shell.counts("slow")["state"] == "running"
    result = running.end(signal.SIGINT)
    assert result.code == 130, result.err
    assert "--name slow --allow-network 127.0.0.0/8 --seeds pipe" in result.err
    pipe.close()


def test_invalid_lines_after_the_first_batch_are_skipped_and_named(site: Site, shell: Shell) -> None:
    hosts = site.take(5)
    seeds = lines(hosts, 1200)
    seeds[1100:1100] = ["http://[\n", "# a note\n", "mailto:ann@example.org\n", "x" * 200_000 + "\n", "http://]\n"]
    (shell.folder / "seeds.gz").write_bytes(gzip.compress("".join(seeds).encode() + b"\xff\xfe\n"))
    result = shell.crawl("--seeds", "seeds.gz", "--name", "bad", "--delay", "0", "--no-follow")
    assert result.code == 1, result.err
    assert shell.counts("bad")["counts"]["admitted"] == 1200
    assert "Line 1101 of seeds.gz: 'http://[' is not a URL" in result.err
    assert "Line 1103 of seeds.gz: " in result.err
    assert "5 lines of seeds.gz are not URLs and were skipped." in result.err
    assert result.err.count(" of seeds.gz") == 4
    assert max(map(len, result.err.splitlines())) < 500


@pytest.mark.parametrize(
    ("content", "name", "sentence"),
    [
        (b"http://127.0.0.1:9/\n\nhttp://[\n", "seeds", "Line 3 of seeds: 'http://[' is not a URL"),
        (b"http://127.0.0.1:9/\n\xff\n", "seeds", "Line 2 of seeds is not UTF-8 text."),
        (b"no gzip", "seeds.gz", "Cannot read the seeds in seeds.gz: Not a gzipped file"),
        (gzip.compress(b"http://127.0.0.1:9/\n" * 50)[:-12], "seeds.gz", "Cannot read the seeds in seeds.gz"),
        (b"# nothing\n", "seeds", "seeds has no URL; write one per line"),
    ],
    ids=["no URL", "no UTF-8", "no gzip", "gzip cut off", "nothing"],
)
def test_invalid_lines_in_the_first_batch_are_refused_before_anything_is_created(
    shell: Shell, content: bytes, name: str, sentence: str
) -> None:
    (shell.folder / name).write_bytes(content)
    result = shell.run("crawl", "--seeds", name)
    assert result.code == 2
    assert sentence in result.err
    assert len(result.err.splitlines()) == 1
    assert not (shell.folder / ".shoal").exists()


@pytest.mark.smoke
def test_links_on_the_hosts_of_late_seeds_are_followed(site: Site, shell: Shell) -> None:
    *hosts, late, beyond = site.take(7)
    site.at(late, "/", page("/a", f"http://{beyond}/"))
    site.at(late, "/a", page())
    (shell.folder / "seeds").write_text("".join([*lines(hosts, 1500), f"http://{late}/\n"]))
    result = shell.crawl("--seeds", "seeds", "--name", "late", "--delay", "0")
    assert result.code == 0, result.err
    assert site.judge(late).times(f"http://{late}/a") == 1
    assert site.requests(beyond) == []


@pytest.mark.full
def test_a_long_seed_file_takes_little_memory(site: Site, shell: Shell) -> None:
    """20 MB of URLs: the test is slow because fewer would not need much memory in any case."""
    hosts = site.take(10)
    with (shell.folder / "seeds").open("w") as file:
        file.writelines(f"http://{hosts[number % 10]}/{'path/' * 36}{number}\n" for number in range(100_000))
    running = shell.start("crawl", "--seeds", "seeds", "--name", "long", "--delay", "60", "--no-follow", *LOCAL)
    running.wait_for_output("Starting crawl long")
    before = peak_bytes(running.process.pid)
    wait_until(lambda: admitted(shell, "long") == 100_000, "all are added")
    assert peak_bytes(running.process.pid) - before < 10_000_000
    assert running.end(signal.SIGINT).code == 130


def peak_bytes(pid: int) -> int:
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1]) * 1000
