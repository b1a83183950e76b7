"""`shoal submit`: a crawl for the workers of a store, or of an API; it is not waited for unless that is asked."""

from __future__ import annotations

import asyncio
import platform
import sys
import time
from pathlib import Path
from typing import Any

import click

from shoal.cli.options import (
    Number,
    WholeNumber,
    file_types_of,
    on_bodies,
    on_links,
    on_store,
    settings_of,
    store_flags,
)
from shoal.errors import InvalidInput, InvalidLimit

# Flags whose name is not that of the request's field.
_FIELDS = {
    "per_host": "places", "delay": "delay_seconds", "timeout": "timeout_seconds", "out": "outputs",
    "deny_extension": "deny_extensions",
}  # fmt: skip


@click.command("submit", short_help="Hand a crawl to the workers of a store, and print its id.")
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option("--seeds", metavar="FILE|-", help="File with more URLs, one a line; - is standard input.")
@click.option("--request", metavar="FILE|-", help="The whole request as JSON, ours or Scrapy Cluster's.")
@click.option("--name", help="Its id, for ever; the same request again changes nothing.  [default: a new one]")
@click.option("--app", help="Whose crawl it is.")
@click.option("--spider", metavar="NAME", help="Spider that the workers know by this name.")
@click.option("--scope", type=click.Choice(["host", "domain", "prefix", "any"]), help="How far from the URLs to go.")
@on_links
@click.option("--priority", metavar="N", type=WholeNumber(-10, 10), help="Higher ones first.  [default: 0]")
@click.option("--expires", metavar="S", type=Number(1), help="End it after so many seconds.")
@click.option("--delay", metavar="S", type=Number(0, 86400), help="Seconds between requests to a host.")
@click.option("--per-host", metavar="N", type=WholeNumber(1, 32), help="Requests open at once to one host.")
@click.option("--by-address", is_flag=True, help="All names of one address are one host: they share a server.")
@click.option("--timeout", metavar="S", type=Number(0.1, 3600), help="Seconds one request may take.")
@click.option("--user-agent", metavar="UA", help="Who we say we are.")
@click.option("--header", metavar="'NAME: VALUE'", multiple=True, help="Send this header, too.")
@click.option("--cookie", metavar="C", help="Send this cookie to the hosts of the given URLs.")
@click.option("--auth", metavar="USER:PASSWORD", help="Log in at the hosts of the given URLs.")
@click.option(
    "--out", metavar="URI|NAME", multiple=True, help="Output, or the name of one the workers have.  [default: default]"
)
@on_bodies
@click.option("--notify", metavar="URL", help="Tell this URL of the end.")
@click.option("--attribute", metavar="NAME=VALUE", multiple=True, help="Given back with the crawl and its records.")
@click.option("--ignore-robots", is_flag=True, help="Do not ask for robots.txt: for your own sites.")
@click.option("--wait", is_flag=True, help="Wait for the end.")
@on_store
def command(store: str | None, folder: str | None, request: str | None, wait: bool, **typed: Any) -> int:
    """Hand a crawl to the workers of a store, and print its id. --store may be the URL of an API, too."""
    from shoal.cli.remote import client_of

    asked = _read_request(request) if request else {}
    asked |= _asked(typed)
    if not asked.get("seeds") and "url" not in asked:
        raise click.UsageError("Give a URL, --seeds with a file of them, or a --request.")
    if client := client_of(store):
        done = client.submit(**asked)
        click.echo(done["id"])
        return _code(client.wait(done["id"])["state"]) if wait else 0
    return asyncio.run(_submit(settings_of(store_flags(store, folder)), asked, wait))


async def _submit(settings: Any, asked: dict[str, Any], wait: bool) -> int:
    import msgspec

    from shoal.cli.ui.console import say, warn
    from shoal.frontier import Frontier
    from shoal.operations import check_places
    from shoal.operations.run import finish_if_over
    from shoal.operations.submit import CrawlRequest, parse, settle, submit, with_output

    # Requests of Scrapy Cluster have no field for it.
    outputs = asked.pop("outputs", ()) if {"crawlid", "appid"} & asked.keys() else ()
    request = parse(asked)
    if not isinstance(request, CrawlRequest):
        raise InvalidInput("The request is an action of Scrapy Cluster; send it to /feed of an API.")
    if outputs:
        request = msgspec.structs.replace(request, outputs=tuple(outputs))
    request = with_output(request, settings.outputs, as_in="--out pages.db")
    machine = platform.node() if settings.store.url else ""
    # Its name is settled before the store is asked, so that a call that is repeated means the same crawl.
    settled = settle(request, machine=machine)
    request = msgspec.structs.replace(request, name=settled.name)
    async with await Frontier.from_settings(settings, on_warning=warn) as frontier:
        await check_places(frontier, settled.policy)
        done = await submit(frontier, request, machine=machine)
        click.echo(done.id)
        if not done.created:
            say(f"Crawl {done.id} was there already.")
        if not await frontier.workers.alive():
            say("No worker is on the store; start some with `shoal worker`.")
        while wait:
            if await finish_if_over(frontier, done.id):
                return _code((await frontier.crawls.get(done.id)).state.value)
            await asyncio.sleep(0.5)
    return 0


def _asked(typed: dict[str, Any]) -> dict[str, Any]:
    """What was typed, as fields of a request; what was not is left to its defaults."""
    asked = {_FIELDS.get(name, name): value for name, value in typed.items() if value not in (None, (), False)}
    seeds = list(asked.pop("urls", ()))
    if source := asked.pop("seeds", None):
        seeds += _read_seeds(source)
    if seeds:
        asked["seeds"] = seeds
    for flag, field in (("no_follow", "follow"), ("no_traps", "traps")):
        if asked.pop(flag, False):
            asked[field] = False
    if "expires" in asked:
        asked["expires_at"] = time.time() + asked.pop("expires")
    if "file_types" in asked:
        asked["file_types"] = file_types_of(asked["file_types"])
    if "header" in asked:
        asked["headers"] = dict(_pair(line, ":", "header") for line in asked.pop("header"))
    if "attribute" in asked:
        asked["attributes"] = dict(_pair(line, "=", "attribute") for line in asked.pop("attribute"))
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asked.items()}


def _pair(text: str, sign: str, flag: str) -> tuple[str, str]:
    name, there, value = text.partition(sign)
    if not there:
        # Without what was typed: it may be a secret.
        raise InvalidLimit(f"A --{flag} has no {sign!r} between name and value.")
    return name.strip(), value.strip()


def _read_request(source: str) -> dict[str, Any]:
    import msgspec

    try:
        raw: bytes = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        asked: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, Any])
    except OSError as error:
        raise InvalidInput(f"The request {source} cannot be read: {error.strerror}.") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"The request {source} is not a JSON object: {error}.") from None
    return asked


def _read_seeds(source: str) -> list[str]:
    from shoal.operations.seeds import Seeds
    from shoal.operations.submit import MAX_SEEDS

    file = Seeds(source)
    found = file.first()

    async def rest() -> None:
        async for batch in file.rest():
            found.extend(batch)
            if len(found) > MAX_SEEDS:
                raise InvalidInput(f"{file.shown} has more than {MAX_SEEDS:,} URLs; hand them over in several crawls.")

    asyncio.run(rest())
    if file.skipped:
        raise InvalidInput(f"{file.faults[0]} (Lines of {file.shown} that are not URLs: {file.skipped}.)")
    return found


def _code(state: str) -> int:
    return 0 if state == "finished" else 1
