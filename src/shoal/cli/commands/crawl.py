"""`shoal crawl`: turns the command line into a CrawlJob, which crawl_runner.py runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from shoal.cli.commands.completion import files
from shoal.cli.crawl_file import from_file
from shoal.cli.options import (
    WholeNumber,
    on_cache,
    on_spec,
    on_store,
    on_verbosity,
    parse_size,
    settings_of,
    spec_fields,
    store_flags,
)
from shoal.cli.ui.json_log import on_log
from shoal.errors import InvalidInput, SinkRefused
from shoal.model.crawl_options import flags
from shoal.model.crawl_request import CrawlRequest
from shoal.model.crawl_spec import STORED_SEEDS
from shoal.model.option import flag_name
from shoal.settings.sections import networks_of


@click.command("crawl", short_help="Crawl from URLs until nothing is left, or resume a crawl.")
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option(
    "-f", "--file", metavar="FILE", is_eager=True, expose_value=False, callback=from_file, shell_complete=files,
    help="TOML file with these flags as keys, e.g. delay = 2; command-line flags take precedence.",
)  # fmt: skip
@click.option(
    "--seeds", metavar="FILE|-", shell_complete=files, help="File with more URLs, one per line; - is standard input."
)
@click.option("--workers", metavar="N", type=WholeNumber(1, 1000), help="Worker processes.  [default: cores]")
@click.option("--name", help="Name of the crawl; the same name resumes it.  [default: host and time]")
@click.option("--again", is_flag=True, help="Revisit the pages of a finished crawl; fetch only what has changed.")
@click.option("--spider", metavar="FILE.py:CLASS", default="", help="Parse pages with your own spider.")
@on_spec("crawl")
@click.option(
    "-O", "--overwrite", metavar="FILE", multiple=True, shell_complete=files,
    help="Like --out, but a new crawl overwrites the file.",
)  # fmt: skip
@click.option("--bandwidth", metavar="RATE", type=parse_size, help="Maximum bytes to receive per second, e.g. 1mb.")
@click.option("--proxy", metavar="URL", help="Forward proxy for all requests.")
@click.option("--allow-network", metavar="CIDR", multiple=True, help="Allow requests to this private network.")
@on_cache
@on_store
@on_verbosity
@on_log
@click.pass_context
def command(ctx: click.Context, /, **typed: Any) -> int:
    """Crawl from URLs until nothing is left.

    Pages go to pages.db in the current folder unless --out is given; --out - prints them as JSON lines. Ctrl-C pauses
    the crawl; the same --name resumes it. With --again, the pages of a finished crawl are visited again, and new pages
    too.
    """
    # Modules that load the store are imported late, so that `shoal crawl --help` is fast.
    from shoal.cli.crawl_runner import CrawlJob, run
    from shoal.cli.spider_choice import choose
    from shoal.cli.standard_output import output_uri
    from shoal.fleet.cores import usable_cores
    from shoal.operations import seed_url
    from shoal.operations.seeds import Seeds
    from shoal.operations.submit import generated_name, to_spec
    from shoal.urls.canonical import parts_of

    seeds = [seed_url(url) for url in typed["urls"]]
    more_seeds = None
    if typed["seeds"]:
        more_seeds = Seeds(typed["seeds"])
        seeds += (first := more_seeds.first())
        if not seeds:
            raise InvalidInput(f"{more_seeds.shown} has no URL; write one per line.")
        if len(first) < STORED_SEEDS:
            more_seeds = None
    name = typed["name"]
    if name == "":
        raise click.UsageError("--name is empty; omit it, or pass a name.")
    if typed["again"] and name is None:
        raise click.UsageError("--again needs --name: which crawl to revisit.")
    if not seeds and name is None and not typed["spider"]:
        raise click.UsageError(
            "Pass a URL, --seeds with a file of URLs, a --spider with start URLs, or the --name of a crawl to resume."
        )
    count = typed["workers"] or usable_cores()
    setting_flags = store_flags(typed["store"], typed["folder"]) | {
        "fetch.allow_networks": ",".join(typed["allow_network"]) or None,
        "fetch.proxy": typed["proxy"],
        "fetch.cache": typed["cache"] and str(Path(typed["cache"]).resolve()),
        # The setting is the share of one process.
        "fetch.bandwidth": typed["bandwidth"] and max(1, typed["bandwidth"] // count),
    }
    settings = settings_of(setting_flags)
    # Spiders that this spider sends pages to may be registered.
    spiders = choose([typed["spider"]] if typed["spider"] else [], settings, alone=False)
    spider = next(iter(spiders.references)) if typed["spider"] else ""
    visits, start_error = [], None
    typed_fields = spec_fields("crawl", typed)
    arguments = typed_fields.get("arguments", {})
    if spider:
        from shoal.operations.submit import spider_settings
        from shoal.spider import check_arguments

        check_arguments(spiders.classes[spider], arguments)
        typed_fields = spider_settings(spiders.classes[spider]) | typed_fields
    if spider and not seeds:
        from shoal.worker.spider_runner import first_visits

        try:
            visits = asyncio.run(first_visits(spiders.classes[spider], arguments))
        except InvalidInput as error:
            # An existing crawl needs no start URLs.
            if name is None:
                raise
            start_error = error
    fields = {"outputs": ("pages.db",), **typed_fields, "spider": spider}
    crawl_name = name or generated_name(parts_of(seeds[0] if seeds else visits[0].url).host)
    if typed["overwrite"]:
        fields["outputs"] = (*typed_fields.get("outputs", ()), *typed["overwrite"])
    fields["outputs"] = tuple(output_uri(settings, crawl_name) if uri == "-" else uri for uri in fields["outputs"])
    try:
        request = _with_uris(CrawlRequest(seeds=(), **fields), settings.outputs)
        spec = msgspec.structs.replace(to_spec(request, seeds), networks=typed["allow_network"])
    except SinkRefused as error:
        # Nothing was opened yet: this is an error of the command line.
        raise InvalidInput(str(error)) from None
    # Report an invalid network now: every worker would refuse it.
    networks_of(settings.fetch.allow_networks)
    return run(
        CrawlJob(
            settings=settings, flags={key: value for key, value in setting_flags.items() if value is not None},
            workers=count, name=crawl_name, chosen=name is not None, overwrite=_overwritten(typed["overwrite"]),
            seeds=seeds, spec=spec, given=_given(ctx), more_seeds=more_seeds, again=typed["again"], spiders=spiders,
            visits=visits, spider=typed["spider"], start_error=start_error, verbose=typed["verbose"],
            no_contact=not re.search(r"https?://|@", spec.user_agent),
        )
    )  # fmt: skip


def _overwritten(outputs: tuple[str, ...]) -> tuple[str, ...]:
    from shoal.sinks import check_output, is_local

    for output in outputs:
        try:
            if output == "-" or not is_local(output):
                raise InvalidInput(f"-O {output} is not a file: use --out.")
        except SinkRefused as error:
            raise InvalidInput(str(error)) from None
    return tuple(check_output(output) for output in outputs)


def _given(ctx: click.Context) -> frozenset[str]:
    """The options that were typed, or are in the file of `-f`."""
    sources = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
    fields = {flag_name(option).replace("-", "_"): option.attribute for option, _ in flags("crawl")}
    return frozenset(fields.get(name, name) for name in ctx.params if ctx.get_parameter_source(name) in sources)


def _with_uris(request: CrawlRequest, named: Mapping[str, str]) -> CrawlRequest:
    """The request with the full spelling of each output. An output that is typed twice is used once."""
    from shoal.sinks import check_output

    outputs = tuple(dict.fromkeys(uri if uri in named else check_output(uri) for uri in request.outputs))
    changes = tuple(dict.fromkeys(uri if uri in named else check_output(uri) for uri in request.changes))
    return msgspec.structs.replace(request, outputs=outputs, changes=changes)
