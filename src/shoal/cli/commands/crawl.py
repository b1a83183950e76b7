"""`shoal crawl`: what was typed, as a crawl's limits and policy. How it runs is in running.py."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

from shoal.cli.commands.completion import files
from shoal.cli.crawl_file import from_file
from shoal.cli.options import (
    Number,
    WholeNumber,
    file_types_of,
    on_bodies,
    on_links,
    on_store,
    parse_size,
    settings_of,
    store_flags,
)
from shoal.cli.ui.json_log import on_log
from shoal.errors import InvalidInput, InvalidLimit, SinkRefused
from shoal.model.crawl import Limits
from shoal.model.crawl_spec import DEFAULT_USER_AGENT, Policy
from shoal.settings.sections import networks_of

# The field of Limits or Policy that a flag sets, where its name is another one.
FIELDS = {
    "scope": "reach", "no_follow": "follow", "no_traps": "traps", "delay": "delay_seconds", "per_host": "places",
    "timeout": "timeout_seconds", "header": "headers", "out": "outputs", "deny_extension": "deny_extensions",
}  # fmt: skip
_FLAGS = {field: flag for flag, field in FIELDS.items()}


@click.command("crawl", short_help="Crawl from URLs until nothing is left, or go on with a crawl.")
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option(
    "-f", "--file", metavar="FILE", is_eager=True, expose_value=False, callback=from_file, shell_complete=files,
    help="TOML file with these flags as keys, as in delay = 2; what is typed goes first.",
)  # fmt: skip
@click.option(
    "--seeds", metavar="FILE|-", shell_complete=files, help="File with more URLs, one a line; - is standard input."
)
@click.option("--workers", metavar="N", type=WholeNumber(1, 1000), help="Worker processes.  [default: cores]")
@click.option(
    "--out", metavar="URI", multiple=True, shell_complete=files,
    help="Output: pages.db, pages.jsonl ...  [default: pages.db]",
)  # fmt: skip
@on_bodies
@click.option("--name", help="Name of the crawl; the same name goes on with it.  [default: host and time]")
@click.option("--again", is_flag=True, help="Visit the pages of a finished crawl again; ask only for what has changed.")
@click.option(
    "--priority", metavar="N", type=WholeNumber(-10, 10), default=0, show_default=True,
    help="Of crawls that share a store, those with a higher one go first.",
)  # fmt: skip
@click.option("--spider", metavar="FILE.py:CLASS", default="", help="Read pages by your own spider.")
@click.option(
    "--scope", type=click.Choice(["host", "domain", "prefix", "any"]), default="host", show_default=True,
    help="How far from the URLs to go.",
)  # fmt: skip
@on_links
@click.option(
    "--delay", metavar="S", type=Number(0, 86400), default=1.0, show_default=True,
    help="Seconds from the end of a request to the next one to the same host.",
)  # fmt: skip
@click.option(
    "--per-host", metavar="N", type=WholeNumber(1, 32), default=1, show_default=True,
    help="Requests open at once to one host.",
)  # fmt: skip
@click.option("--by-address", is_flag=True, help="All names of one address are one host: they share a server.")
@click.option("--bandwidth", metavar="RATE", type=parse_size, help="Bytes a second to receive at most, as 1mb.")
@click.option(
    "--timeout", metavar="S", type=Number(0.1, 3600), default=30.0, show_default=True,
    help="Seconds one request may take.",
)  # fmt: skip
@click.option("--user-agent", metavar="UA", default=DEFAULT_USER_AGENT, show_default=True, help="Who we say we are.")
@click.option("--header", metavar="'NAME: VALUE'", multiple=True, help="Send this header, too.")
@click.option("--cookie", metavar="C", default="", help="Send this cookie to the hosts of the given URLs.")
@click.option("--auth", metavar="USER:PASSWORD", default="", help="Log in at the hosts of the given URLs.")
@click.option("--proxy", metavar="URL", help="Forward proxy for all requests.")
@on_store
@click.option("--allow-network", metavar="CIDR", multiple=True, help="Private network that may be asked.")
@click.option("--ignore-robots", is_flag=True, help="Do not ask for robots.txt: for your own sites.")
@on_log
@click.pass_context
def command(ctx: click.Context, /, **typed: Any) -> int:
    """Crawl from URLs until nothing is left.

    Pages go to pages.db in the current folder, unless --out says otherwise. Ctrl-C pauses the crawl, and the same
    --name goes on with it. With --again the pages of a finished crawl are visited again, and what is new.
    """
    # What loads the store comes late, so that `shoal crawl --help` does without it.
    from shoal.cli.crawl_runner import CrawlJob, run
    from shoal.cli.spider_choice import choose
    from shoal.operations import check, seed_url
    from shoal.operations.seeds import FIRST, Seeds

    seeds = [seed_url(url) for url in typed["urls"]]
    rest = None
    if typed["seeds"]:
        rest = Seeds(typed["seeds"])
        seeds += (first := rest.first())
        if len(first) < FIRST:
            rest = None
    name = typed["name"]
    if name == "":
        raise click.UsageError("--name is empty; leave it out, or give the crawl a name.")
    if typed["again"] and name is None:
        raise click.UsageError("Say with --name which crawl is to be visited --again.")
    if not seeds and name is None and not typed["spider"]:
        raise click.UsageError(
            "Give a URL, --seeds with a file of them, a --spider that says where to begin, or the --name of a crawl "
            "to go on with."
        )
    count = typed["workers"] or cores()
    flags = store_flags(typed["store"], typed["folder"]) | {
        "fetch.allow_networks": ",".join(typed["allow_network"]) or None,
        "fetch.proxy": typed["proxy"],
        # The setting is one process's share.
        "fetch.bandwidth": typed["bandwidth"] and max(1, typed["bandwidth"] // count),
    }
    settings = settings_of(flags)
    # One that this spider sends pages to may be registered.
    spiders = choose([typed["spider"]] if typed["spider"] else [], settings, alone=False)
    spider = next(iter(spiders.references)) if typed["spider"] else ""
    visits, startless = [], None
    if spider and not seeds:
        from shoal.worker.spider_runner import first_visits

        try:
            visits = asyncio.run(first_visits(spiders.classes[spider]))
        except InvalidInput as error:
            # A crawl that is there goes on without: it began with URLs.
            if name is None:
                raise
            startless = error
    limits = Limits(
        delay_seconds=typed["delay"], places=typed["per_host"], max_pages=typed["max_pages"] or 0,
        max_pages_per_host=typed["max_pages_per_host"] or 0, max_depth=typed["max_depth"], priority=typed["priority"],
        spider=spider,
    )  # fmt: skip
    policy = Policy(
        seeds=tuple(seeds[:1000]), reach=typed["scope"], allow=typed["allow"], deny=typed["deny"],
        deny_extensions=typed["deny_extension"],
        follow=not typed["no_follow"], max_bytes=typed["max_bytes"] or 0, timeout_seconds=typed["timeout"],
        user_agent=typed["user_agent"], headers=_headers(typed["header"]), cookie=typed["cookie"], auth=typed["auth"],
        ignore_robots=typed["ignore_robots"], by_address=typed["by_address"], sitemaps=typed["sitemaps"],
        traps=not typed["no_traps"],
        files=_files(typed["files"]), file_types=file_types_of(typed["file_types"]),
        # Who wants no delay does not want one that follows from slow answers either.
        delay_factor=1.0 if typed["delay"] else 0.0,
        outputs=_outputs(typed["out"] or ("pages.db",), settings.outputs),
    )  # fmt: skip
    limits.check()
    check(policy)
    # What every worker would refuse is refused at once.
    networks_of(settings.fetch.allow_networks)
    return run(
        CrawlJob(
            settings=settings, flags={key: value for key, value in flags.items() if value is not None},
            workers=count, name=name or _named(seeds[0] if seeds else visits[0].url), chosen=name is not None,
            seeds=seeds, limits=limits,
            policy=policy, given=_given(ctx), rest=rest, again=typed["again"], spiders=spiders, visits=visits,
            spider=typed["spider"], startless=startless,
            nameless=not re.search(r"https?://|@", policy.user_agent),
        )
    )  # fmt: skip


def flag_of(field: str) -> str:
    """How a field of Limits or Policy is typed."""
    return "--" + _FLAGS.get(field, field).replace("_", "-")


def _given(ctx: click.Context) -> frozenset[str]:
    said = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
    return frozenset(FIELDS.get(name, name) for name in ctx.params if ctx.get_parameter_source(name) in said)


def _outputs(typed: tuple[str, ...], named: Mapping[str, str]) -> tuple[str, ...]:
    from shoal.sinks import check_output

    try:
        # One that is typed twice, in two spellings perhaps, is one.
        return tuple(dict.fromkeys(uri if uri in named else check_output(uri) for uri in typed))
    except SinkRefused as error:
        raise InvalidInput(str(error)) from None


def _files(uri: str | None) -> str:
    if uri is None:
        return ""
    from shoal.sinks.bodies import check_files

    try:
        return str(check_files(uri))
    except SinkRefused as error:
        raise InvalidInput(str(error)) from None


def _headers(lines: tuple[str, ...]) -> dict[str, str]:
    headers = {}
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if not colon:
            # By its number: the value may be a secret.
            raise InvalidLimit(f"--header number {number} has no colon: write 'Name: value'.")
        headers[name.strip()] = value.strip()
    return headers


def _named(seed: str) -> str:
    from shoal.urls.canonical import canonical

    host = re.sub(r"[^A-Za-z0-9_.-]+", "-", canonical(seed).host).strip("-")
    return f"{host[:100]}-{time.strftime('%Y%m%d-%H%M%S')}"


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
