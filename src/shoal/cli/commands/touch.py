"""`shoal touch`: visit pages of a perpetual crawl soon."""

from __future__ import annotations

import click

from shoal.cli.options import on_store


@click.command("touch", short_help="Revisit changed pages of a perpetual crawl soon.")
@click.argument("crawl", metavar="ID")
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@on_store
def command(crawl: str, urls: tuple[str, ...], store: str | None, folder: str | None) -> int:
    """Revisit pages of a perpetual crawl (--every) soon, e.g. because they have changed.

    URLs in scope that the crawl does not know are added. Others are reported, and the exit code is 1.
    """
    from shoal.cli.control import open_control
    from shoal.cli.main import FAILED, FINISHED
    from shoal.cli.ui.console import pluralize, report, visible, warn
    from shoal.operations.touch import MAX_URLS

    touched = new = 0
    refused: dict[str, str] = {}
    with open_control(store, folder) as control:
        for start in range(0, len(urls), MAX_URLS):
            result = control.touch(crawl, urls[start : start + MAX_URLS])
            touched, new = touched + result.touched, new + result.new
            refused.update(result.refused)
    added = f", and added {pluralize(new, 'URL')}" if new else ""
    report(f"Crawl {crawl} will visit {pluralize(touched, 'page')} soon{added}.")
    for url, reason in refused.items():
        warn(f"{visible(url)} is not visited: {visible(reason)}")
    return FAILED if refused else FINISHED
