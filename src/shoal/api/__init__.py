"""The HTTP API: submit and manage crawls from other programs. `shoal serve` runs it."""

from shoal.api.app import application
from shoal.api.server import run

__all__ = ["application", "run"]
