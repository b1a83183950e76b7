"""The reference of commands names every existing command and flag."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from shoal.cli.main import COMMANDS, program

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/commands.md").read_text(encoding="utf-8")


def _command(name: str) -> click.Command:
    command = program.get_command(click.Context(program), name)
    assert command is not None
    return command


def _params(command: click.Command) -> list[click.Parameter]:
    """The parameters of a command and of its own commands."""
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return [*command.params, *(param for subcommand in below for param in _params(subcommand))]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_flag_is_in_the_reference(name: str) -> None:
    command = _command(name)
    assert f"shoal {name}" in PAGE
    assert command.name == name
    assert command.short_help == COMMANDS[name]
    for param in _params(command):
        for flag in param.opts:
            if isinstance(param, click.Option):
                assert re.search(rf"`[^`]*{re.escape(flag)}\b", PAGE), f"{flag} of {name} is not in the reference"


def test_the_reference_names_no_flag_that_does_not_exist() -> None:
    known = {"--help", "--version"}
    for name in COMMANDS:
        known |= {flag for param in _params(_command(name)) for flag in param.opts}
    assert set(re.findall(r"--[a-z][a-z-]+", PAGE)) <= known
