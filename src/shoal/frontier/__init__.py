"""The shared frontier: see `Frontier`."""

from shoal.frontier.acknowledgement import AckBatch, Done
from shoal.frontier.dump import dump
from shoal.frontier.epochs import mono
from shoal.frontier.frontier import Frontier
from shoal.frontier.hosts import Host
from shoal.frontier.restore import load
from shoal.frontier.shard_owners import owned
from shoal.frontier.workers import WorkerInfo

# The name of AckBatch in Shoal 0.1.
Receipt = AckBatch

__all__ = ["AckBatch", "Done", "Frontier", "Host", "Receipt", "WorkerInfo", "dump", "load", "mono", "owned"]
