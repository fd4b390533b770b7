"""Where the tasks go: IFS and ETP of the paper, baselines, and a better search.

Every algorithm takes a job and a cluster and returns a `Placement`; the searches also
say what its makespan is. Must not know: scenarios, sockets, clocks.
"""

from emu.placement.baselines import place_explicit, place_random, place_round_robin
from emu.placement.distdgl import colocated_pairs, place_distdgl
from emu.placement.ifs import place_ifs
from emu.placement.load import ResourceLoad, port_seconds, resource_loads

__all__ = [
    "ResourceLoad",
    "colocated_pairs",
    "place_distdgl",
    "place_explicit",
    "place_ifs",
    "place_random",
    "place_round_robin",
    "port_seconds",
    "resource_loads",
]
