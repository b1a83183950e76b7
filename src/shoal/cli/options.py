"""Flags that several commands share, and their values. crawl_spec.py declares the flags of a crawl's options."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from shoal.cli.commands.completion import files, folders
from shoal.cli.ui.console import set_quiet, warn
from shoal.errors import InvalidInput, InvalidLimit, StoreRefused
from shoal.model.crawl_options import flags
from shoal.model.crawl_spec import COOKIE_JARS, SCOPES
from shoal.model.option import Flag, Option, flag_name
from shoal.model.validation import WIDEST
from shoal.settings import Settings, load

Command = TypeVar("Command", bound=Callable[..., Any])
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_ON_AN_API = (
    "submit, crawls, show, explain, pause, resume, stop, delete, change, touch, failed, revisit, forget and hosts"
)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)\Z", re.IGNORECASE)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)b?\Z", re.IGNORECASE)


class WholeNumber(click.IntRange):
    """A whole number within a range. Its name appears in error messages."""

    name = "whole number"


class Number(click.FloatRange):
    name = "number"


def parse_size(text: str) -> int:
    """The bytes of a size such as 1.5mb. A kilobyte has 1000 bytes."""
    size = _SIZE.match(text.strip())
    if size is None:
        raise click.BadParameter(f"{text!r} is not a size: write 500000, 500k, 1.5mb or 2gb.")
    size_bytes = int(float(size[1]) * _UNITS[size[2].lower()])
    if not size_bytes:
        raise click.BadParameter("must be greater than 0; leave the flag out for no limit.")
    return size_bytes


def parse_duration(text: str) -> float:
    """The seconds of a time such as 30m."""
    duration = _DURATION.match(text.strip())
    if duration is None:
        raise click.BadParameter(f"{text!r} is not a time: write 90s, 30m, 2h or 1d.")
    seconds = float(duration[1]) * _SECONDS[duration[2].lower()]
    if not 0 < seconds <= 10**9:
        raise click.BadParameter("must be greater than 0 and at most 10000d; leave the flag out for no limit.")
    return seconds


def on_spec(command_name: str, *only: str) -> Callable[[Command], Command]:
    """Add the flags of a crawl's options, as crawl_spec.py declares them. `spec_fields` reads their values.

    `only`: the fields to add flags for; all fields if it is empty.
    """

    def put_on(command: Command) -> Command:
        # click shows flags in the reverse order of their decorators.
        for option, flag in reversed(list(flags(command_name))):
            if only and option.attribute not in only:
                continue
            names = (flag.short, f"--{flag_name(option)}") if flag.short else (f"--{flag_name(option)}",)
            command = click.option(*names, **_click_arguments(option, flag, command_name))(command)
        return command

    return put_on


def spec_fields(command_name: str, typed: dict[str, Any]) -> dict[str, Any]:
    """The options that were typed, by their attributes; the others keep their defaults."""
    fields = {}
    for option, flag in flags(command_name):
        value = typed.get(flag_name(option).replace("-", "_"))
        if value is None or value == () or value is False:
            continue
        if option.default is True:
            value = False
        elif flag.separator:
            value = dict(_pair(text, flag, number) for number, text in enumerate(value, 1))
        elif flag.commas:
            value = tuple(part.strip() for text in value for part in text.split(",") if part.strip())
        fields[option.attribute] = value
    return fields


_CHOICES = {"scope": SCOPES, "cookie_jar": COOKIE_JARS}


def _click_arguments(option: Option, flag: Flag, command_name: str) -> dict[str, Any]:
    """Return the arguments of click.option. No flag has a default here: an option that is not typed is not set."""
    help_text = flag.help or option.description
    if option.kind is bool:
        return {"is_flag": True, "help": help_text}
    # Options that are omitted in `shoal change` stay unchanged.
    has_default = option.default not in (None, "", 0, (), {}) or (option.least or 0) < 0
    if has_default and command_name != "change":
        help_text += f"  [default: {option.default}]"
    arguments: dict[str, Any] = {"metavar": flag.metavar or None, "help": help_text}
    if flag.completes_files:
        arguments["shell_complete"] = files
    if flag.size:
        return arguments | {"type": parse_size}
    if flag.duration:
        return arguments | {"type": parse_duration}
    if option.name in _CHOICES:
        return arguments | {"type": click.Choice(_CHOICES[option.name])}
    if option.kind in (int, float):
        # If 0 means no limit, users omit the flag instead of passing 0.
        least = 1 if option.default == 0 and option.least == 0 else option.least
        most = None if option.most == WIDEST else option.most
        return arguments | {"type": _number(option.kind, least, most)}
    return arguments | ({"multiple": True} if option.kind is not str else {})


def _number(kind: type, least: float | None, most: float | None) -> WholeNumber | Number:
    if kind is float:
        return Number(least, most)
    return WholeNumber(None if least is None else int(least), None if most is None else int(most))


def on_verbosity(command: Command) -> Command:
    """-v and -q."""
    command = click.option(
        "-q", "--quiet", is_flag=True, expose_value=False, callback=_choose_verbosity,
        help="Print only errors.",
    )(command)  # fmt: skip
    return click.option(
        "-v", "--verbose", is_flag=True, callback=_choose_verbosity,
        help="Log each request: time, status, bytes, duration and URL.",
    )(command)  # fmt: skip


def _choose_verbosity(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    if value and ctx.meta.setdefault("shoal.verbosity", param.name) != param.name:
        raise click.UsageError("Choose either -v or -q.")
    if param.name == "quiet":
        set_quiet(value)
    return value


def on_cache(command: Command) -> Command:
    """--cache, with or without a folder."""
    return click.option(
        "--cache", metavar="[FOLDER]", is_flag=False, flag_value=".shoal-cache", shell_complete=folders,
        help="For development: request each page once, then read it from this folder.  "
        "[default folder: .shoal-cache]",
    )(command)  # fmt: skip


def on_request(command: Command) -> Command:
    """The flags of a command that requests single pages."""
    for option in (
        click.option("--allow-network", metavar="CIDR", multiple=True, help="Allow requests to this private network."),
        click.option("--proxy", metavar="URL", help="Forward proxy for all requests."),
    ):
        command = option(command)
    command = on_cache(command)
    return on_spec(
        "crawl", "delay_seconds", "timeout_seconds", "user_agent", "headers", "cookie", "auth", "ignore_robots"
    )(command)  # fmt: skip


def request_settings(typed: dict[str, Any]) -> Settings:
    """The settings of a command with the flags of `on_request`."""
    from shoal.settings.sections import networks_of

    flags = {
        "fetch.allow_networks": ",".join(typed["allow_network"]) or None, "fetch.proxy": typed["proxy"],
        "fetch.cache": typed["cache"],
    }  # fmt: skip
    settings = load(flags=flags).settings
    networks_of(settings.fetch.allow_networks)
    return settings


def _pair(text: str, flag: Flag, number: int) -> tuple[str, str]:
    name, separator, value = text.partition(flag.separator)
    if not separator:
        # The message shows the position of the flag, not its value, which may be a secret.
        sign = {":": "colon", "=": "equals sign"}[flag.separator]
        raise InvalidLimit(f"--{flag.name} number {number} has no {sign}: write {flag.metavar.strip(chr(39))}.")
    return name.strip(), value.strip()


def on_store(command: Command) -> Command:
    """--store and --folder."""
    command = click.option(
        "--folder", metavar="DIR", help="Folder of the embedded store.  [default: .shoal]", type=str,
        shell_complete=folders,
    )(command)  # fmt: skip
    return click.option(
        "--store",
        metavar="URL",
        help="Valkey or Redis server, e.g. redis://host:6379/0.  [default: embedded]",
    )(command)


def store_flags(store: str | None, folder: str | None) -> dict[str, Any]:
    return {"store.url": store, "store.folder": folder}


def settings_of(flags: dict[str, Any]) -> Settings:
    """All settings, with a warning for each unknown SHOAL_ variable."""
    environ = {name: value for name, value in os.environ.items() if name not in ("SHOAL_DEBUG", "SHOAL_LOG")}
    loaded = load(flags=flags, environ=environ)
    for text in loaded.warnings:
        warn(text)
    if loaded.settings.store.url.startswith(("http://", "https://")):
        # Commands that support an API do not get here with its URL.
        name = click.get_current_context().info_name
        raise InvalidInput(f"`shoal {name}` needs the store itself: on the URL of an API only {_ON_AN_API} work.")
    return loaded.settings


def existing(store: str | None, folder: str | None) -> Settings:
    """The settings of an existing store. Commands that read crawls do not create a store."""
    settings = settings_of(store_flags(store, folder))
    folder_path = Path(settings.store.folder)
    if not settings.store.url and not (folder_path / "store").is_dir():
        raise StoreRefused(f"No store found in {folder_path}; pass --folder or --store.")
    return settings
