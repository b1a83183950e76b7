"""`shoal health`: the result of a worker's or server's health check as an exit code, for containers without curl."""

from __future__ import annotations

import http.client
import json

import click

from shoal.cli.main import FAILED, FINISHED
from shoal.cli.options import settings_of
from shoal.cli.ui.console import fail

_SECONDS = 5.0


@click.command("health", short_help="Check a worker or server on this machine.")
@click.option("--port", metavar="N", type=click.IntRange(1, 65535), help="Port of the health check.")
@click.option("--ready", is_flag=True, help="Check whether it is ready for work, and not only alive.")
def command(port: int | None, ready: bool) -> int:
    """Check `shoal worker` (worker.health) or `shoal serve` (api.port) on this machine; exit code 1 if it is not alive.

    Without --port, the worker is checked if it listens, otherwise the server.
    """
    settings = settings_of({})
    # Both may be bound to all addresses, and this is always the same machine.
    known = [settings.worker.health.rpartition(":")[2], str(settings.api.port)]
    for candidate in [str(port)] if port else filter(None, known):
        connection = http.client.HTTPConnection("127.0.0.1", int(candidate), timeout=_SECONDS)
        try:
            connection.request("GET", "/readyz" if ready else "/healthz")
            response = connection.getresponse()
            body = response.read(10_000)
        except ConnectionRefusedError:
            continue
        except (OSError, http.client.HTTPException) as error:
            fail(f"No response on port {candidate}: {error!r}.")
            return FAILED
        finally:
            connection.close()
        if response.status == 200:
            click.echo("ready" if ready else "alive")
            return FINISHED
        fail(_problem(body) or f"Port {candidate} returned status {response.status}.")
        return FAILED
    fail("No worker or server listens for health checks; start it with --health PORT, or pass --port.")
    return FAILED


def _problem(body: bytes) -> str:
    try:
        return str(json.loads(body).get("problem", ""))
    except (ValueError, AttributeError):
        return ""
