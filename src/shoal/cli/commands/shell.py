"""`shoal shell`: a Python prompt with a fetched page."""

from __future__ import annotations

import sys
from typing import Any

import click

from shoal.cli.options import on_request


@click.command("shell", short_help="Fetch one page and open a Python prompt with it.")
@click.argument("url", metavar="URL")
@on_request
def command(url: str, **typed: Any) -> None:
    """Fetch one page and open a Python prompt, to try selectors.

    `page` is what a spider's method receives, `response` has status, headers and body, `links` are the links that a
    crawl would follow, and `record` is what it would store. `fetch(URL)` replaces them all. IPython is used if it is
    installed.
    """
    from shoal.cli.single_fetch import SingleFetch

    with SingleFetch(url, typed) as single:
        names: dict[str, Any] = {}

        def fetch(url: str) -> Any:
            """Fetch another page; `page`, `response`, `links` and `record` are then of that page."""
            fetched = single.fetch(url)
            names.update(page=fetched.page, response=fetched.response, links=list(fetched.links), record=fetched.record)
            return fetched.page

        names["fetch"] = fetch
        page = fetch(single.url)
        _prompt(f"{page!r}\nNames: page, response, links, record, fetch(URL). Press Ctrl-D to exit.", names)


def _prompt(banner: str, names: dict[str, Any]) -> None:
    if sys.stdin.isatty():
        import importlib

        try:
            ipython = importlib.import_module("IPython")
        except ModuleNotFoundError:
            pass
        else:
            click.echo(banner, err=True)
            ipython.start_ipython(argv=["--no-banner"], user_ns=names)
            return
    import code

    # Completion in the prompt; Windows has none.
    try:
        import readline  # noqa: F401
        import rlcompleter  # noqa: F401
    except ModuleNotFoundError:
        pass
    code.interact(banner=banner, local=names, exitmsg="")
