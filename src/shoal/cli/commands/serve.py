"""`shoal serve`: the HTTP API of a store, until a signal."""

from __future__ import annotations

import click

from shoal.cli.options import WholeNumber, on_store, settings_of, store_flags
from shoal.cli.ui.json_log import on_service_log


@click.command("serve", short_help="Run the HTTP API server.")
@on_store
@click.option("--host", metavar="ADDRESS", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", metavar="N", type=WholeNumber(0, 65535), help="Port to listen on.  [default: 8080]")
@click.option("--make-token", metavar="ROLE[:APP]", help="Print a new token and its line for shoal.toml, and exit.")
@click.option(
    "--allow-network", metavar="CIDR", multiple=True, help="Allow notification webhooks to this private network."
)
@on_service_log
def command(
    store: str | None, folder: str | None, host: str | None, port: int | None, make_token: str | None,
    allow_network: tuple[str, ...],
) -> None:  # fmt: skip
    """Run the HTTP API server: crawls, hosts, workers, metrics. /openapi.json describes the API."""
    from importlib.util import find_spec

    from shoal.cli.ui.console import format_lines, write
    from shoal.cli.ui.json_log import emit
    from shoal.errors import SettingsError

    if missing := [name for name in ("starlette", "uvicorn", "prometheus_client") if find_spec(name) is None]:
        raise SettingsError(f"The API needs {', '.join(missing)}; run: pip install 'shoal[api]'.")
    if make_token is not None:
        from shoal.api.auth import create_token

        token, line = create_token(make_token)
        click.echo(token)
        text = f'Keep the token: it is not shown again. Add to the shoal.toml of the server:\n[tokens]\nNAME = "{line}"'
        # Not an event: plain text even when the log is JSON.
        write(format_lines(text, "info"))
        return
    import uvloop

    from shoal.api import run

    flags = store_flags(store, folder) | {
        "api.host": host, "api.port": port, "fetch.allow_networks": ",".join(allow_network) or None,
    }  # fmt: skip
    uvloop.run(run(settings_of(flags), emit=emit))
