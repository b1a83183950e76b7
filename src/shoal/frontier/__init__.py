"""The shared frontier: see `Frontier`."""

from shoal.frontier.dump import dump, load
from shoal.frontier.frontier import Done, Frontier
from shoal.frontier.hosts import Host
from shoal.frontier.shards import mono

__all__ = ["Done", "Frontier", "Host", "dump", "load", "mono"]
