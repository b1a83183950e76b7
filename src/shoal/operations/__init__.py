"""Operations on crawls, shared by the command line, the HTTP API and Python."""

from shoal.operations.describe import Description, describe, waiting_for
from shoal.operations.locality import check_joining, check_places, pause_interrupted
from shoal.operations.merge_outputs import is_merged, merge_outputs
from shoal.operations.seeds import seed_url
from shoal.operations.start import StartedCrawl, StartMode, begin, check_spec

__all__ = [
    "Description",
    "StartMode",
    "StartedCrawl",
    "begin",
    "check_joining",
    "check_places",
    "check_spec",
    "describe",
    "is_merged",
    "merge_outputs",
    "pause_interrupted",
    "seed_url",
    "waiting_for",
]
