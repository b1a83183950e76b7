"""The shared frontier: see `Frontier`."""

from shoal.frontier.dump import dump, load
from shoal.frontier.frontier import Done, Frontier, Receipt
from shoal.frontier.hosts import Host
from shoal.frontier.shard_owners import owned
from shoal.frontier.shards import mono
from shoal.frontier.workers import WorkerInfo

__all__ = ["Done", "Frontier", "Host", "Receipt", "WorkerInfo", "dump", "load", "mono", "owned"]
