"""`shoal failed`: the URLs that failed, with their reasons, and their retry."""

from __future__ import annotations

import itertools

import click

from shoal.cli.options import WholeNumber, on_store


@click.command("failed", short_help="List the URLs that failed, or retry them.")
@click.argument("crawl", metavar="ID")
@click.option("--retry", is_flag=True, help="Retry them.")
@click.option("--url", "urls", metavar="URL", multiple=True, help="Only this URL; may be repeated.")
@click.option("--reason", metavar="TEXT", default="", help="Only URLs that failed for this reason, e.g. 'status 503'.")
@click.option("--limit", "--most", "most", metavar="N", type=WholeNumber(1), help="List at most N.  [default: all]")
@on_store
def command(
    crawl: str, retry: bool, urls: tuple[str, ...], reason: str, most: int | None, store: str | None, folder: str | None
) -> None:
    """List the failed URLs of a crawl, one per line: the reason, a tab, the URL."""
    from shoal.cli.control import open_control
    from shoal.cli.ui.console import pluralize, report, visible
    from shoal.operations.seeds import seed_target

    chosen = [seed_target(url).url for url in urls]
    with open_control(store, folder) as control:
        if retry:
            if most is not None:
                raise click.UsageError("--limit applies to the list and cannot be combined with --retry.")
            count, resume = control.retry(crawl, urls=chosen or None, reason=reason)
            queued = f"Queued {pluralize(count, 'URL')} again."
            report(f"{queued} Resume with: {resume}" if resume else queued)
            return
        failures = (
            (failure_reason, url)
            for failure_reason, url in control.failed(crawl)
            if (not chosen or url in chosen) and reason in ("", failure_reason)
        )
        for failure_reason, url in itertools.islice(failures, most):
            click.echo(f"{visible(failure_reason)}\t{visible(url)}")
