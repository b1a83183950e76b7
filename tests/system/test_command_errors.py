"""Wrong arguments, and problems of the machine: one sentence on stderr, and the right exit code."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import click
import pytest

import shoal
from shoal import Frontier
from shoal.cli import synonyms
from shoal.cli.main import COMMANDS, program
from shoal.errors import InvalidInput
from tests.servers import free_port
from tests.system.shell import LOCAL, Shell

URL = "http://127.0.0.1:9/"


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (["crawl"], "Pass a URL, --seeds with a file of URLs, a --spider with start URLs, or the --name"),
        (["crawl", "not a url"], "'not a url' is not a URL"),
        (["crawl", "mailto:ann@example.org"], "has an unsupported scheme"),
        (["crawl", "file:///etc/passwd"], "has an unsupported scheme: use http, https or ftp"),
        (["crawl", "http://"], "is not a URL"),
        (["crawl", "http://localhost:99999/"], "has the port 99999: a port is a number up to 65535."),
        (["crawl", "http//example.org"], "'http//example.org' is not a URL; did you mean http://?"),
        (["crawl", "https//ann:s3cret@example.org"], "'https//' is not a URL; did you mean https://?"),
        (["submit", URL], "No output: pass e.g. --out pages.db, or name an output `default` in [outputs]"),
        (["crawl", URL, "--dely", "2"], "No such option --dely; did you mean --delay"),
        (["crawl", URL, "--delay", "-1"], "-1.0 is not in the range"),
        (["crawl", URL, "--delay", "nan"], "delay_seconds is nan"),
        (["crawl", URL, "--workers", "0"], "0 is not in the range"),
        (["crawl", URL, "--workers", "two"], "'two' is not a valid whole number"),
        (["crawl", URL, "--delay", "long"], "'long' is not a valid number"),
        (["crawl", URL, "--scope", "world"], "'world' is not one of"),
        (["crawl", URL, "--allow", "("], "allow pattern '(' does not compile"),
        (["crawl", URL, "--bandwidth", "fast"], "'fast' is not a size"),
        (["crawl", URL, "--user-agent", "Mozilla/5.0 (x)\n"], "contains a line break"),
        (["crawl", URL, "--user-agent", "bot2/1.0"], "The product token is 'bot2'"),
        (["crawl", URL, "--header", "X-Secret-s3cret"], "--header number 1 has no colon"),
        (["crawl", URL, "--header", "Bad Name: x"], "Invalid header name 'Bad Name'"),
        (["crawl", URL, "--allow-network", "10.0.0.0/99"], "10.0.0.0/99"),
        (["crawl", URL, "--proxy", "ftp://x"], "fetch.proxy is 'ftp://x'"),
        (["crawl", URL, "--proxy", "http://u:s3cret@[bad"], "fetch.proxy is"),
        (["crawl", URL, "--store", "http://x"], "store"),
        (["crawl", URL, "--name", ""], "--name is empty"),
        (["crawl", URL, "--auth", "s3cret"], "auth has no colon between user and password"),
        (["crawl", URL, "--max-bytes", "0"], "must be greater than 0; leave the flag out"),
        (["crawl", URL, "--bandwidth", "0"], "must be greater than 0; leave the flag out"),
        (["crawl", URL, "--files", "f", "--file-types", "pdf"], "is not a content type: write e.g. image/."),
        (["crawl", URL, "--file-types", "image/"], "file_types needs files"),
        (["crawl", URL, "--out", "pages.xyz"], "Unsupported output"),
        (["crawl", URL, "--out", "missing/pages.db"], "does not exist"),
        (["crawl", URL, "--out", "mysql://u:s3cret@h:notaport/db"], "The output"),
        (["crawl", URL, "--files", "s3://a:s3cret@c/d"], "contains keys"),
        (["plan", "--pages", "1M", "--hosts", "1", "--page-size", "99999999999tb"], "is not a page size"),
        (["crawl", URL, "--name", "a b"], "A crawl's id is 'a b'"),
        (["crawl", "--seeds", "missing.txt"], "Cannot read the seeds in missing.txt"),
        (["crawl", "--name", "nothing"], "There is no crawl 'nothing' to resume"),
        (["crwal", URL], "No such command 'crwal'; did you mean `shoal crawl`?"),
        (["status", "c"], "No such command 'status'; did you mean `shoal show`?"),
        (["fly"], "No such command 'fly'"),
        (["completion"], "Name the shell: `shoal completion bash`"),
        (["hosts", "h", "--block", "--unblock"], "contradict each other"),
        (["hosts", "h", "--delay", "1", "--forget-delay"], "contradict each other"),
        (["hosts", "--block"], "Name the HOST to change"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_reported_in_one_sentence(shell: Shell, typed: list[str], sentence: str) -> None:
    result = shell.call(*typed)
    assert result.code == 2, result.err
    lines = result.err.splitlines()
    assert len(lines) == 1, result.err
    assert sentence in lines[0]
    assert lines[0].startswith("shoal: ")
    assert "s3cret" not in lines[0]
    assert result.out == ""
    assert not (shell.folder / "pages.db").exists()


def test_an_invalid_line_of_a_seed_file_is_named(shell: Shell) -> None:
    (shell.folder / "seeds").write_text(f"{URL}\n\nhttp://[\n")
    result = shell.run("crawl", "--seeds", "seeds")
    assert result.code == 2
    assert "Line 3 of seeds: 'http://[' is not a URL" in result.err
    assert not (shell.folder / ".shoal").exists()


@pytest.mark.full
@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        ("/proc/pages.db", "cannot be used: unable to open database file"),
        ("/proc/pages.jsonl", "cannot be written"),
    ],
)
def test_an_impossible_output_is_refused_before_anything_is_created(shell: Shell, out: str, sentence: str) -> None:
    result = shell.run("crawl", URL, "--out", out)
    assert result.code == 1, result.err
    assert sentence in result.err
    if (shell.folder / ".shoal").exists():
        assert shell.run("crawls").out == ""


@pytest.mark.full
@pytest.mark.parametrize("typed", [("crawls",), ("plan", "--pages", "1M", "--hosts", "1")])
def test_a_full_disk_is_not_reported_as_an_internal_error(shell: Shell, typed: tuple[str, ...]) -> None:
    assert shell.run("submit", URL, "--out", "pages.db", "--name", "one").code == 0
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "shoal", *typed], cwd=shell.folder, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert result.returncode == 1
    assert result.stderr == "shoal: Cannot write to stdout: No space left on device.\n"


def test_a_file_at_the_path_of_the_folder_is_reported(shell: Shell) -> None:
    (shell.folder / ".shoal").write_text("a file")
    result = shell.run("crawl", URL)
    assert result.code == 1
    assert re.search(
        r"^shoal: .*\.shoal.*(is a file|lies below a file|File exists|Not a directory).*choose another",
        result.err,
        re.M,
    ), result.err
    assert (shell.folder / ".shoal").read_text() == "a file"


def test_an_unwritable_folder_is_reported(shell: Shell) -> None:
    result = shell.run("crawl", URL, "--folder", "/proc/shoal")
    assert result.code == 1
    assert "/proc/shoal" in result.err
    assert "choose another folder" in result.err


def test_a_store_of_another_version_is_refused(shell: Shell) -> None:
    async def age() -> None:
        async with await Frontier.open(folder=str(shell.folder / ".shoal")) as frontier:
            store = frontier.shards.store
            for key in await store.command("KEYS", "*meta*"):
                if await store.command("HEXISTS", key, "schema", key=key.decode()):
                    await store.command("HSET", key, "schema", "0", key=key.decode())

    asyncio.run(age())
    result = shell.run("crawl", URL)
    assert result.code == 1, result.err
    assert "has schema 0" in result.err
    assert "Traceback" not in result.err


@pytest.mark.full
def test_a_command_waits_for_a_silent_store_then_names_it_without_its_password(shell: Shell) -> None:
    shell.environ["SHOAL_STORE_TIMEOUT_SECONDS"] = "1"
    result = shell.run("crawl", URL, "--store", f"redis://:s3cret@127.0.0.1:{free_port()}")
    assert result.code == 1
    assert "did not respond for 1 s" in result.err
    assert "s3cret" not in result.err


def test_private_networks_get_no_requests_unless_they_are_allowed(shell: Shell) -> None:
    result = shell.run("crawl", "http://127.0.0.1:1234/")
    assert result.code == 1, result.err
    assert "forbidden address" in result.err
    assert result.err.count("hint ") == 1
    assert "allow one, e.g. --allow-network 127.0.0.0/8" in result.err


def test_python_errors_name_options_and_not_flags() -> None:
    with pytest.raises(InvalidInput, match="no argument delay; did you mean delay_seconds"):
        shoal.crawl(URL, delay=1)
    with pytest.raises(InvalidInput, match="no argument max_page; did you mean max_pages"):
        shoal.crawl(URL, max_page=1)


def test_a_coordinator_refuses_a_crawl_without_an_output(shell: Shell) -> None:
    coordinator = shoal.Coordinator(folder=str(shell.folder / ".shoal"))
    with pytest.raises(InvalidInput, match=r"No output: pass e\.g\. outputs="):
        coordinator.submit([URL])


def test_listen_reports_errors_as_json_too(shell: Shell) -> None:
    result = shell.run("listen", "carrier-pigeon://loft", "--log", "json")
    assert result.code == 2, result.err
    event = json.loads(result.err)
    assert (event["event"], event["level"]) == ("error", "error")


@pytest.mark.full
def test_a_host_that_does_not_exist_ends_the_crawl(shell: Shell) -> None:
    result = shell.run("crawl", "http://nowhere.invalid/", *LOCAL, "--delay", "0")
    assert result.code == 1, result.err
    # At once, and without a word about robots.txt.
    assert "1 unknown host" in result.err
    assert "robots.txt" not in result.err


def test_commands_that_only_read_create_no_store(shell: Shell) -> None:
    for typed in (["crawls"], ["show", "x"], ["pause", "x"], ["failed", "x"], ["hosts", "x"]):
        result = shell.run(*typed)
        assert result.code == 1
        assert "No store found in .shoal" in result.err
    assert list(shell.folder.iterdir()) == []


def test_help_names_every_command_without_loading_the_store(shell: Shell) -> None:
    result = shell.run("--help")
    assert result.code == 0
    for command in ("crawl", "worker", "show", "demo"):
        assert re.search(rf"^  {command} ", result.out, re.M)
    program = "import sys; from shoal.cli.main import program\ntry: program.main(['--help'])\nexcept SystemExit: pass\nprint('pycurl' in sys.modules, 'shoal.cli.crawl_runner' in sys.modules)"  # noqa: E501
    assert shell.start(program=("-c", program)).end().out.endswith("False False\n")


def test_an_unknown_variable_only_warns(shell: Shell) -> None:
    shell.environ["SHOAL_STORE_FOLDRE"] = "x"
    result = shell.run("show", "x")
    assert "SHOAL_STORE_FOLDRE is not a setting and is ignored" in result.err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--limit", "--max-pages"), ("--exclude", "--deny"), ("--include", "--allow"), ("--concurrency", "--per-host"),
        ("--depth", "--max-depth"), ("--threads", "--workers"), ("--wait", "--delay"), ("--no-traps", "--follow-traps"),
        ("--tries", "--retries"), ("--output", "--out"), ("--input-file", "--seeds"), ("--time-limit", "--max-time"),
    ],
)  # fmt: skip
def test_a_flag_of_another_program_suggests_the_flag_of_shoal(shell: Shell, typed: str, meant: str) -> None:
    result = shell.call("crawl", "http://localhost/", typed, "3")
    assert result.code == 2
    assert f"No such option {typed}; did you mean {meant}?" in result.err


def test_a_misspelt_flag_with_several_candidates_is_reported_in_one_sentence(shell: Shell) -> None:
    result = shell.call("crawl", "http://localhost/", "--max-bite", "3")
    assert result.code == 2
    assert re.search(
        r"No such option --max-bite; did you mean --max-\S+(, --\S+)* or --\S+[a-z]\? See `shoal crawl --help`\.$",
        result.err.strip(),
    )
    assert "No such option --xyzzy. See `shoal crawl --help`." in shell.call("crawl", "--xyzzy").err


def test_every_flag_and_command_that_is_suggested_exists() -> None:
    known = {flag for name in COMMANDS for param in command_of(name).params for flag in param.opts}
    assert set(synonyms._MEANT) <= known
    assert set(synonyms._MEANT_COMMANDS) <= set(COMMANDS)
    assert not set(synonyms._COMMANDS) & set(COMMANDS)


def command_of(name: str) -> click.Command:
    command = program.get_command(click.Context(program), name)
    assert command is not None
    return command


def test_a_file_without_a_url_is_named(shell: Shell) -> None:
    (shell.folder / "seeds.txt").write_text("# none yet\n\n")
    result = shell.call("crawl", "--seeds", "seeds.txt")
    assert result.code == 2
    assert "seeds.txt has no URL; write one per line." in result.err


def test_too_few_open_files_are_not_blamed_on_the_server(shell: Shell) -> None:
    command = f"ulimit -n 20; exec {sys.executable} -m shoal crawl {URL} --workers 1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=shell.folder, capture_output=True, text=True, env=shell._environ(), check=False
    )
    assert done.returncode == 1, done.stderr
    assert "reinstall" not in done.stderr
    assert "ulimit -n" in done.stderr


def test_a_command_does_not_wait_long_for_a_store_that_refuses(shell: Shell) -> None:
    from shoal.cli.control import StoreControl, open_control

    with mock.patch.dict(os.environ, {"SHOAL_STORE_TIMEOUT_SECONDS": "60"}):
        control = open_control(f"redis://127.0.0.1:{free_port()}/0", None)
    assert isinstance(control, StoreControl)
    assert control._settings.store.timeout_seconds <= 5
