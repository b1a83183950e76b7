"""`shoal failed`: the URLs that failed, with their reasons, and their retry."""

from __future__ import annotations

import itertools

import click

from shoal.cli.options import WholeNumber, on_store


@click.command("failed", short_help="List the URLs that failed, or retry them.")
@click.argument("crawl", metavar="ID")
@click.option("--retry", is_flag=True, help="Retry them.")
@click.option("--most", metavar="N", type=WholeNumber(1), help="List at most N.  [default: all]")
@on_store
def command(crawl: str, retry: bool, most: int | None, store: str | None, folder: str | None) -> None:
    """List the failed URLs of a crawl, one per line: the reason, a tab, the URL."""
    from shoal.cli.control import open_control
    from shoal.cli.ui.console import pluralize, report, visible

    with open_control(store, folder) as control:
        if retry:
            count, resume = control.retry(crawl)
            queued = f"Queued {pluralize(count, 'URL')} again."
            report(f"{queued} Resume with: {resume}" if resume else queued)
            return
        for reason, url in itertools.islice(control.failed(crawl), most):
            click.echo(f"{visible(reason)}\t{visible(url)}")
