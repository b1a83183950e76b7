"""What a person does to crawls, the same from the command line and from an API."""

from shoal.control.begin import Begun, How, begin, check, read_seeds, seed_url
from shoal.control.describe import Description, describe
from shoal.control.places import check_joining, check_places, pause_interrupted

__all__ = [
    "Begun",
    "Description",
    "How",
    "begin",
    "check",
    "check_joining",
    "check_places",
    "describe",
    "pause_interrupted",
    "read_seeds",
    "seed_url",
]
