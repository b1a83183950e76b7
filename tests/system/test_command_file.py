"""`shoal crawl -f crawl.toml`: flags as keys of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from shoal.cli.commands.crawl import command
from shoal.cli.crawl_file import _checked
from shoal.cli.main import run
from shoal.cli.options import parse_duration
from tests.site.responses import page
from tests.site.site import Site
from tests.system.shell import Shell


def options_of(shell: Shell, crawl: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(shell.run("show", crawl, "--json").out)
    return shown["policy"] | shown["limits"]


def test_a_crawl_uses_its_file_and_flags_take_precedence(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page("/a", "/b"))
    (shell.folder / "crawl.toml").write_text(f"""
        urls = ["http://{host}/"]
        name = "filed"
        out = ["one.db", "two.jsonl"]
        delay = 0
        max-pages = 5
        max_depth = 3
        max-bytes = "5mb"
        deny = ["/b$"]
        header = ["X-One: 1"]
        no-follow = false
        scope = "domain"
        allow_network = ["127.0.0.0/8"]
        priority = -2
    """)
    result = shell.run("crawl", "-f", "crawl.toml", "--max-depth", "7", "--scope", "host")
    assert result.code == 0, result.err
    shown = options_of(shell, "filed")
    expected = {
        "delay_seconds": 0.0, "max_pages": 5, "max_depth": 7, "max_bytes": 5_000_000, "deny": ["/b$"], "reach": "host",
        "headers": {"X-One": "***"}, "follow": True, "priority": -2,
        # Relative to the folder in which it was typed.
        "outputs": [f"sqlite:{shell.folder / 'one.db'}", f"jsonl:{shell.folder / 'two.jsonl'}"],
    }  # fmt: skip
    assert {name: shown[name] for name in expected} == expected
    assert set(shell.rows("one.db")) == {f"http://{host}/", f"http://{host}/a"}


@pytest.mark.full
def test_ignored_options_of_a_file_are_reported_like_flags(site: Site, shell: Shell) -> None:
    (host,) = site.take()
    site.at(host, "/", page())
    (shell.folder / "a.toml").write_text(f'urls = ["http://{host}/"]\nname = "n"\nallow-network = ["127.0.0.0/8"]\n')
    assert shell.run("crawl", "-f", "a.toml", "--delay", "0").code == 0
    result = shell.run("failed", "n", "--retry")
    assert result.code == 0, result.err
    (shell.folder / "b.toml").write_text('name = "n"\ndelay = 4\nallow-network = ["127.0.0.0/8"]\n')
    result = shell.run("crawl", "--file", "b.toml")
    assert "--delay is ignored: an existing crawl keeps its original settings" in result.err


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("dely = 1", "unknown key 'dely'; did you mean delay?"),
        ("max_pagse = 1", "did you mean max-pages?"),
        ("zzz = 1", "unknown key 'zzz'; the keys are "),
        ("file = 'x'", "unknown key 'file'"),
        ("delay = 's3cret'", "delay in c.toml must be a number from 0 to 86400."),
        ("delay = true", "delay in c.toml must be a number"),
        ("delay = -1", "delay in c.toml must be a number from 0 to 86400."),
        ("workers = 1.5", "workers in c.toml must be a whole number from 1 to 1000."),
        ("max-pages = '9'", "max-pages in c.toml must be a whole number from 1."),
        ("no-follow = 1", "no-follow in c.toml must be true or false."),
        ("scope = 'world'", "scope in c.toml must be one of host, domain, prefix, any."),
        ("out = 'pages.db'", "out in c.toml must be a list of strings."),
        ("header = [1]", "header in c.toml must be a list of strings."),
        ("cookie = 5", "cookie in c.toml must be a string."),
        ("bandwidth = 's3cret'", "bandwidth in c.toml must be a size"),
        ("max-pages = 1\nmax_pages = 2", "max-pages is given twice"),
        ("[settings]\ndelay = 1", "unknown key 'settings'"),
        ("delay = ", "Invalid TOML in c.toml: "),
        ("delay = 'ä'".encode("latin-1"), "c.toml is not UTF-8 text"),
        (None, "Cannot read c.toml: No such file or directory."),
    ],
)
def test_an_error_in_a_file_is_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    content: str | bytes | None, sentence: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "c.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SystemExit) as ended:
        run(["crawl", "http://127.0.0.1:9/", "-f", "c.toml"])
    stderr = capsys.readouterr().err
    assert ended.value.code == 2, stderr
    assert len(stderr.splitlines()) == 1, stderr
    assert sentence in stderr
    assert "s3cret" not in stderr
    assert not (tmp_path / ".shoal").exists()


def test_every_flag_can_be_written_in_a_file() -> None:
    """None has a type that the file does not know: what is written is what would be typed."""
    samples: dict[type, Any] = {
        click.types.BoolParamType: True, click.IntRange: 2, click.FloatRange: 2.5, click.types.FuncParamType: "5k",
    }  # fmt: skip
    written: dict[str, Any] = {}
    for param in command.params:
        if not param.expose_value:
            continue
        assert param.name is not None
        sample: Any = next((value for kind, value in samples.items() if isinstance(param.type, kind)), "text")
        if isinstance(param.type, click.Choice):
            sample = param.type.choices[0]
        elif getattr(param.type, "func", None) is parse_duration:
            sample = "90s"
        written[param.name] = ["text"] if param.multiple or param.nargs == -1 else sample
    context = click.Context(command)
    assert set(_checked(context, "c.toml", written)) == set(written)
