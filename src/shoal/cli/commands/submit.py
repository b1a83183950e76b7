"""`shoal submit`: create a crawl for the workers of a store or of an HTTP API, and return at once unless --wait."""

from __future__ import annotations

import asyncio
import platform
import sys
import time
from pathlib import Path
from typing import Any

import click

from shoal.cli.options import Number, on_spec, on_store, settings_of, spec_fields, store_flags
from shoal.errors import InvalidInput
from shoal.model.crawl_options import options


@click.command("submit", short_help="Submit a crawl to the workers of a store, and print its id.")
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option("--seeds", metavar="FILE|-", help="File with more URLs, one per line; - is standard input.")
@click.option("--request", metavar="FILE|-", help="The whole request as JSON, in Shoal's or Scrapy Cluster's schema.")
@click.option("--name", help="Id of the crawl; submitting the same request again changes nothing.  [default: a new id]")
@click.option("--spider", metavar="NAME", help="Spider, by its name on the workers; without a URL, a Scrapy spider.")
@on_spec("submit")
@click.option("--expires", metavar="S", type=Number(1), help="Expire the crawl after this many seconds.")
@click.option("--wait", is_flag=True, help="Wait until the crawl ends.")
@on_store
def command(store: str | None, folder: str | None, request: str | None, wait: bool, **typed: Any) -> int:
    """Submit a crawl to the workers of a store, and print its id. --store may also be the URL of an HTTP API.

    Without --out, pages go to the output that [outputs] in shoal.toml calls `default`.

    With --spider and no URL, a spider of a Scrapy project is run by the processes that wait for one
    (`python -m shoal.scrapy` in the project's folder), with the arguments given by -a.
    """
    from shoal.cli.remote import client_of
    from shoal.cli.ui.console import visible

    if typed["spider"] and not (request or typed["urls"] or typed["seeds"]):
        return _submit_scrapy(store, folder, wait, typed)
    fields = _read_request(request) if request else {}
    fields |= _fields(typed)
    if not fields.get("seeds") and "url" not in fields:
        raise click.UsageError("Pass a URL, --seeds with a file of URLs, or --request.")
    if client := client_of(store):
        done = client.submit(**fields)
        # The server may be untrusted.
        click.echo(visible(str(done["id"])))
        return _code(client.wait(done["id"])["state"]) if wait else 0
    return asyncio.run(_submit(settings_of(store_flags(store, folder)), fields, wait))


def _submit_scrapy(store: str | None, folder: str | None, wait: bool, typed: dict[str, Any]) -> int:
    from shoal.cli.remote import client_of

    if client_of(store):
        raise click.UsageError("A Scrapy spider is submitted to a store, not to an HTTP API: pass the store's --store.")
    extra = [f"--{name}" for name in ("name", "expires") if typed[name]]
    fields = spec_fields("submit", typed)
    arguments = fields.pop("arguments", {})
    extra += [f"--{name.replace('_', '-')}" for name in fields]
    if extra:
        given = ", ".join(extra)
        raise click.UsageError(f"{given} cannot be used with a Scrapy spider: use the project's settings.")
    return asyncio.run(_submit_spider(settings_of(store_flags(store, folder)), typed["spider"], arguments, wait))


async def _submit_spider(settings: Any, spider: str, arguments: dict[str, str], wait: bool) -> int:
    from shoal.cli.ui.console import report, warn
    from shoal.frontier import Frontier
    from shoal.operations.scrapy_crawl import submit_spider

    async with await Frontier.from_settings(settings, on_warning=warn) as frontier:
        crawl, created = await submit_spider(frontier, spider, arguments)
        click.echo(crawl.id)
        if not created:
            report(f"Crawl {crawl.id} already exists.")
        if not any(worker.heartbeat.kind.startswith("scrapy") for worker in await frontier.workers.alive()):
            report("No Scrapy process is waiting for crawls; start one in the project's folder: python -m shoal.scrapy")
        while wait:
            state = (await frontier.crawls.get(crawl.id)).state
            if not state.open:
                return _code(state.value)
            await asyncio.sleep(0.5)
    return 0


async def _submit(settings: Any, fields: dict[str, Any], wait: bool) -> int:
    import msgspec

    from shoal.cli.main import FAILED
    from shoal.cli.ui.console import report, warn
    from shoal.cli.ui.json_log import emit
    from shoal.frontier import Frontier
    from shoal.model.crawl_request import CrawlRequest
    from shoal.operations import check_places
    from shoal.operations.run import CrawlRun, finish_if_over
    from shoal.operations.spider_options import load_spider_options
    from shoal.operations.submit import parse, submit, to_submission, with_output

    # A request of Scrapy Cluster has no field for outputs.
    outputs = fields.pop("outputs", ()) if {"crawlid", "appid"} & fields.keys() else ()
    named = {name: reference for name, reference in settings.spiders.items() if name == fields.get("spider")}
    request = parse(fields, load_spider_options(named, emit=emit))
    if not isinstance(request, CrawlRequest):
        raise InvalidInput("The request is not a crawl; send it to /feed of the HTTP API.")
    if outputs:
        request = msgspec.structs.replace(request, outputs=tuple(outputs))
    request = with_output(request, settings.outputs, as_in="--out pages.db")
    machine = platform.node() if settings.store.url else ""
    submission = to_submission(request, machine=machine, networks=settings.fetch.allow_networks)
    async with await Frontier.from_settings(settings, on_warning=warn) as frontier:
        await check_places(frontier, submission.spec)
        done = await submit(frontier, submission)
        click.echo(done.id)
        if not done.created:
            report(f"Crawl {done.id} already exists.")
        if not await frontier.workers.alive():
            report("No worker is connected to the store; start workers with `shoal worker`.")
        while wait:
            if await finish_if_over(frontier, done.id):
                crawl = await frontier.crawls.get(done.id)
                # Files of another machine are merged there.
                if crawl.spec.get("machine", "") == machine:
                    run = CrawlRun(frontier, done.id, outputs=settings.outputs, emit=emit)
                    if not await run.merge_rest():
                        return FAILED
                return _code(crawl.state.value)
            await asyncio.sleep(0.5)
    return 0


def _fields(typed: dict[str, Any]) -> dict[str, Any]:
    """The fields of a request that were typed; the others keep their defaults."""
    names = {option.attribute: option.name for option in options()}
    fields = {names[attribute]: value for attribute, value in spec_fields("submit", typed).items()}
    seeds = [*typed["urls"], *(_read_seeds(typed["seeds"]) if typed["seeds"] else ())]
    given = {"seeds": seeds, "name": typed["name"], "spider": typed["spider"]}
    fields |= {name: value for name, value in given.items() if value}
    if typed["expires"]:
        fields["expires_at"] = time.time() + typed["expires"]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def _read_request(source: str) -> dict[str, Any]:
    import msgspec

    try:
        raw: bytes = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        fields: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, Any])
    except OSError as error:
        raise InvalidInput(f"Cannot read the request {source}: {error.strerror}.") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"The request {source} is not a JSON object: {error}.") from None
    return fields


def _read_seeds(source: str) -> list[str]:
    from shoal.model.crawl_request import MAX_SEEDS
    from shoal.operations.seeds import Seeds

    file = Seeds(source)
    urls = file.first()

    async def read_rest() -> None:
        async for batch in file.rest():
            urls.extend(batch)
            if len(urls) > MAX_SEEDS:
                raise InvalidInput(f"{file.shown} has more than {MAX_SEEDS:,} URLs; submit them as several crawls.")

    asyncio.run(read_rest())
    if file.skipped:
        raise InvalidInput(f"{file.faults[0]} (Lines of {file.shown} that are not URLs: {file.skipped}.)")
    return urls


def _code(state: str) -> int:
    return 0 if state == "finished" else 1
