"""`shoal revisit` and `shoal forget`: URLs that a crawl has seen, on a store or on an API."""

from __future__ import annotations

import click

from shoal.cli.options import on_store


@click.command("revisit", short_help="Visit URLs of a crawl again now.")
@click.argument("crawl", metavar="ID")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@on_store
def revisit(crawl: str, urls: tuple[str, ...], store: str | None, folder: str | None) -> None:
    """Visit URLs again although the crawl has seen them, as soon as their hosts allow it.

    A failed URL is retried, and a URL that waits for a retry is due now. A finished crawl runs again.
    """
    from shoal.cli.control import open_control
    from shoal.cli.ui.console import pluralize, report

    with open_control(store, folder) as control:
        count, resume = control.revisit(crawl, urls)
    queued = f"Queued {pluralize(count, 'URL')} for a visit."
    report(f"{queued} Resume with: {resume}" if resume else queued)


@click.command("forget", short_help="Forget that a crawl has seen URLs.")
@click.argument("crawl", metavar="ID")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@on_store
def forget(crawl: str, urls: tuple[str, ...], store: str | None, folder: str | None) -> None:
    """Forget that a crawl has seen URLs. The crawl visits each of them when it finds the URL again."""
    from shoal.cli.control import open_control
    from shoal.cli.ui.console import pluralize, report

    with open_control(store, folder) as control:
        count = control.forget(crawl, urls)
    report(f"Crawl {crawl} has forgotten {pluralize(count, 'URL')}.")
