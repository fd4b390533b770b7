"""Contests: instances on which one rule, placement or system loses most to another."""

from emu.experiment.contest.contestants import Contestant, Kind, read_contestants
from emu.experiment.contest.near_file import NearFile
from emu.experiment.contest.search import Contest, Effort, find_worst
from emu.experiment.contest.small_job import SmallJob

__all__ = [
    "Contest",
    "Contestant",
    "Effort",
    "Kind",
    "NearFile",
    "SmallJob",
    "find_worst",
    "read_contestants",
]
