"""What a person does to crawls, the same from the command line and from an API."""

from shoal.control.begin import Begun, How, begin, check, seed_url
from shoal.control.describe import Description, describe, waiting_for
from shoal.control.gathering import gather_outputs, is_gathered
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
    "gather_outputs",
    "is_gathered",
    "pause_interrupted",
    "seed_url",
    "waiting_for",
]
