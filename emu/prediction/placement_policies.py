"""The placement policies by name: method, origin and input of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class PlacementPolicy(NamedTuple):
    """One placement policy."""

    summary: str
    """Its method, in one line."""
    source: str
    """Its publication or other origin."""
    knows: str = "nothing"
    """Its input besides demands and capacities."""


_JUDGED = "expected times and volumes: what it tries is simulated"

#: Values of ``placement.policy``.
PLACEMENT_POLICIES: Mapping[str, PlacementPolicy] = {
    "explicit": PlacementPolicy("as the scenario spells it out", "the user"),
    "ifs": PlacementPolicy(
        "a feasible placement, by a dynamic program over counts of like tasks",
        "DGTP (INFOCOM 2022), Algorithm 2",
    ),
    "etp": PlacementPolicy(
        "a random walk from that of ifs, which favours shorter makespans",
        "DGTP (INFOCOM 2022), Algorithm 3",
        _JUDGED,
    ),
    "best": PlacementPolicy(
        "the best of etp, of all placements where they are few, else of annealing",
        "this project",
        _JUDGED,
    ),
    "distdgl": PlacementPolicy(
        "as many samplers as possible beside their worker",
        "DistDGL (IA3 2020) as DGTP section VI-A runs it",
        "who sends to whom",
    ),
    "random": PlacementPolicy("any feasible placement, drawn at random", "baseline"),
    "round_robin": PlacementPolicy("one machine after the other", "baseline"),
}
