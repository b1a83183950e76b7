"""`shoal change`: other options for a crawl that is running or paused."""

from __future__ import annotations

from typing import Any

import click

from shoal.cli.options import on_spec, on_store, spec_fields


@click.command("change", short_help="Change the options of an open crawl.")
@click.argument("crawl", metavar="ID")
@on_spec("change")
@click.option("--preview", is_flag=True, help="Only count the waiting URLs that the new rules exclude.")
@on_store
def command(crawl: str, preview: bool, store: str | None, folder: str | None, **typed: Any) -> None:
    """Change options of a running or paused crawl. All workers apply them within five seconds.

    New patterns replace all patterns of the same kind.
    """
    from shoal.cli.control import open_control
    from shoal.cli.ui.console import pluralize, report
    from shoal.errors import InvalidInput
    from shoal.model.crawl_options import flag_of

    options = spec_fields("change", typed)
    if not options:
        raise InvalidInput("Nothing to change: pass an option, e.g. --delay 2.")
    with open_control(store, folder) as control:
        changed = control.change_options(crawl, options, preview=preview)
    if not changed.changed:
        report(f"Crawl {crawl} has these options already.")
        return
    names = ", ".join(map(flag_of, changed.changed))
    report(f"{'Preview: would change' if preview else 'Changed'} {names} of crawl {crawl}.")
    if changed.waiting:
        waiting = pluralize(changed.waiting, "waiting URL")
        which = "" if changed.all_read else " that were read"
        report(f"The new rules exclude {changed.removed:,} of {waiting}{which}.")
