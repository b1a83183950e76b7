"""`shoal doctor`: check the store and this machine."""

from __future__ import annotations

import asyncio

import click

from shoal.cli.options import on_store, settings_of, store_flags


@click.command("doctor", short_help="Check the store and this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@on_store
def command(as_json: bool, store: str | None, folder: str | None) -> int:
    """Check the store and this machine, and suggest how to fix what is wrong.

    Changes nothing and creates no store. Exits with 1 if a check fails.
    """
    from shoal.cli.main import FAILED, FINISHED
    from shoal.cli.ui.console import printable_json, visible
    from shoal.operations.doctor import FAIL, examine_machine, examine_store

    settings = settings_of(store_flags(store, folder))
    findings = [*asyncio.run(examine_store(settings)), *examine_machine(settings)]
    failed = any(finding.state == FAIL for finding in findings)
    if as_json:
        click.echo(printable_json({"ok": not failed, "checks": findings}))
    else:
        for finding in findings:
            click.echo(f"{finding.state:<6}{finding.check:<14}{visible(finding.text)}")
    return FAILED if failed else FINISHED
