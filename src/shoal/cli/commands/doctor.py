"""`shoal doctor`: whether the store and this machine are as a crawl needs them."""

from __future__ import annotations

import asyncio

import click

from shoal.cli.options import on_store, settings_of, store_flags


@click.command("doctor", short_help="Check the store and this machine.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@on_store
def command(as_json: bool, store: str | None, folder: str | None) -> int:
    """Check the store and this machine, and say what to do where something is not as a crawl needs it.

    Changes nothing, and makes no store. Exit code 1 when something fails.
    """
    import msgspec

    from shoal.cli.main import FAILED, FINISHED
    from shoal.cli.ui.console import visible
    from shoal.operations.doctor import FAIL, examine_machine, examine_store

    settings = settings_of(store_flags(store, folder))
    found = [*asyncio.run(examine_store(settings)), *examine_machine(settings)]
    failed = any(one.state == FAIL for one in found)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"ok": not failed, "checks": found})).decode())
    else:
        for one in found:
            click.echo(f"{one.state:<6}{one.check:<14}{visible(one.text)}")
    return FAILED if failed else FINISHED
