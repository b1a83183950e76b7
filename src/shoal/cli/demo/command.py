"""`shoal demo`: a crawl of four small sites on this machine, checked against the web servers' log."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli.options import settings_of
from shoal.cli.ui.console import report, warn
from shoal.errors import SinkRefused

if TYPE_CHECKING:
    from shoal.cli.demo.site import Sites

_FOLDER = "shoal-demo"
_WORKERS = 2


@click.command("demo", short_help="Crawl four small sites that ship with Shoal.")
def command() -> int:
    """Crawl four small sites that ship with Shoal, on this machine only, and check the result.

    Pages are written to the folder shoal-demo; everything else is temporary.
    """
    from shoal.cli.crawl_runner import CrawlJob, run
    from shoal.cli.demo.site import DELAY_SECONDS, Sites
    from shoal.cli.main import FINISHED, INTERRUPTED
    from shoal.model.crawl_spec import CrawlSpec
    from shoal.operations import seed_url
    from shoal.sinks import check_output
    from shoal.store.embedded import remove_folder

    results = _results()
    sites = Sites()
    store = tempfile.mkdtemp(prefix="shoal-demo-")
    try:
        with sites.served():
            report(
                f"Crawling four sites on this machine with {_WORKERS} workers, and {DELAY_SECONDS:g} s between "
                "requests to the same host.\n"
            )
            flags = {"store.url": "", "store.folder": store, "fetch.allow_networks": "127.0.0.0/8", "fetch.proxy": ""}
            job = CrawlJob(
                settings=settings_of(flags),
                flags=flags,
                workers=_WORKERS,
                name="demo",
                chosen=True,
                seeds=list(map(seed_url, sites.seeds())),
                spec=CrawlSpec(delay_seconds=DELAY_SECONDS, outputs=tuple(check_output(str(path)) for path in results)),
            )
            code = run(job)
            if code == INTERRUPTED:
                warn("Interrupted: the demo's store is removed.")
            if code != FINISHED:
                return code
        return _show(sites, results)
    finally:
        remove_folder(Path(store))


def _show(sites: Sites, results: tuple[Path, Path]) -> int:
    from shoal.cli.demo.report import PromiseBroken, report_lines
    from shoal.cli.main import FAILED, FINISHED
    from shoal.cli.ui.summary import sample_command

    try:
        click.echo("\n" + "\n".join(report_lines(sites, results[1])))
    except PromiseBroken as error:
        warn(str(error))
        return FAILED
    command = sample_command(f"sqlite:{results[0]}", "demo")
    click.echo(f"The demo took {sites.now():.1f} s. See the pages with:\n\n  {command}\n")
    return FINISHED


def _results() -> tuple[Path, Path]:
    """Return the output files, after removing those of an earlier demo."""
    folder = Path(_FOLDER)
    paths = folder / "pages.db", folder / "pages.jsonl"
    try:
        folder.mkdir(exist_ok=True)
        for path in (*paths, folder / "pages.db-wal", folder / "pages.db-shm"):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise SinkRefused(
            f"Cannot write the folder {folder} here ({error.strerror}); run the demo in another folder."
        ) from None
    return paths
