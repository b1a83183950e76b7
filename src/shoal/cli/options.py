"""Flags that several commands have, and what they become."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from shoal.cli.commands.completion import folders
from shoal.cli.ui.console import warn
from shoal.errors import InvalidInput, StoreRefused
from shoal.settings import Settings, load

Command = TypeVar("Command", bound=Callable[..., Any])
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_ON_AN_API = "submit, crawls, show, pause, resume, stop, delete, failed and hosts"
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)b?\Z", re.IGNORECASE)


class WholeNumber(click.IntRange):
    """A whole number within a range, called so when it is none."""

    name = "whole number"


class Number(click.FloatRange):
    name = "number"


def parse_size(text: str) -> int:
    """Bytes of a size such as 1.5mb; a kilobyte has 1000."""
    found = _SIZE.match(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is not a size: write 500000, 500k, 1.5mb or 2gb.")
    size = int(float(found[1]) * _UNITS[found[2].lower()])
    if not size:
        raise click.BadParameter("0 is no size: leave the flag out where there is no limit.")
    return size


def file_types_of(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Each may have several, with commas between them."""
    return tuple(one.strip().lower() for text in texts for one in text.split(",") if one.strip())


def on_bodies(command: Command) -> Command:
    """Which bodies a crawl keeps, and where."""
    command = click.option(
        "--file-types", metavar="TYPE", multiple=True, help="Keep only those of this type, as image/."
    )(command)
    return click.option(
        "--files", metavar="URI", help="Keep the bodies of what is fetched there, in a folder or a bucket."
    )(command)


def on_links(command: Command) -> Command:
    """Which links a crawl follows, and how many pages it takes."""
    flags = (
        click.option("--allow", metavar="RE", multiple=True, help="Visit only URLs that match one of these."),
        click.option("--deny", metavar="RE", multiple=True, help="Visit no URL that matches one of these."),
        click.option("--deny-extension", metavar="EXT", multiple=True, help="Visit no URL that ends so, as zip."),
        click.option("--no-follow", is_flag=True, help="Visit the given URLs alone."),
        click.option("--sitemaps", is_flag=True, help="Visit what the sitemaps of each host list, too."),
        click.option("--no-traps", is_flag=True, help="Follow also links that only endless sites have."),
        click.option("--max-pages", metavar="N", type=WholeNumber(1), help="End after this many pages."),
        click.option("--max-pages-per-host", metavar="N", type=WholeNumber(1), help="Pages of one host at most."),
        click.option("--max-depth", metavar="N", type=WholeNumber(0), help="Links away from the URLs at most."),
        click.option("--max-bytes", metavar="N", type=parse_size, help="End after this many bytes, as 500mb."),
    )
    # The last one first: they are shown in the order in which they are put on.
    for flag in reversed(flags):
        command = flag(command)
    return command


def on_store(command: Command) -> Command:
    """--store and --folder."""
    command = click.option(
        "--folder", metavar="DIR", help="Folder of the embedded store.  [default: .shoal]", type=str,
        shell_complete=folders,
    )(command)  # fmt: skip
    return click.option(
        "--store", metavar="URL", help="Valkey or Redis to use, as redis://host:6379/0, instead of the embedded one."
    )(command)


def store_flags(store: str | None, folder: str | None) -> dict[str, Any]:
    return {"store.url": store, "store.folder": folder}


def settings_of(flags: dict[str, Any]) -> Settings:
    """All settings, with a warning for each variable that is not one."""
    environ = {name: value for name, value in os.environ.items() if name not in ("SHOAL_DEBUG", "SHOAL_LOG")}
    loaded = load(flags=flags, environ=environ)
    for text in loaded.warnings:
        warn(text)
    if loaded.settings.store.url.startswith(("http://", "https://")):
        # What can do with an API has looked for one before.
        name = click.get_current_context().info_name
        raise InvalidInput(f"`shoal {name}` needs the store itself: on the URL of an API only {_ON_AN_API} work.")
    return loaded.settings


def existing(store: str | None, folder: str | None) -> Settings:
    """Settings of a store that is there: looking at crawls makes none."""
    settings = settings_of(store_flags(store, folder))
    place = Path(settings.store.folder)
    if not settings.store.url and not (place / "store").is_dir():
        raise StoreRefused(f"There is no store in {place}; give its --folder, or its URL with --store.")
    return settings
