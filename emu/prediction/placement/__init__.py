"""Place the tasks: IFS and ETP of the paper, baselines, and a better search.

Every algorithm takes a job and a cluster and returns a `Placement`; the searches also
say what its makespan is. Must not know: scenarios, sockets, clocks.
"""

from emu.prediction.placement.baselines import (
    place_explicit,
    place_ifs,
    place_random,
    place_round_robin,
)
from emu.prediction.placement.bound import placement_bound
from emu.prediction.placement.candidates import JobsCost, common_draws
from emu.prediction.placement.distdgl import place_distdgl
from emu.prediction.placement.etp import EtpOptions, search_etp
from emu.prediction.placement.packing import ResourceLoad, resource_loads
from emu.prediction.placement.place import (
    PLACEMENT_POLICIES,
    affordable,
    best_placement,
    place,
)
from emu.prediction.placement.ring_order import with_placed_ring
from emu.prediction.placement.search import SearchOptions, search
from emu.prediction.placement.space import PlacementResult

__all__ = [
    "PLACEMENT_POLICIES",
    "EtpOptions",
    "JobsCost",
    "PlacementResult",
    "ResourceLoad",
    "SearchOptions",
    "affordable",
    "best_placement",
    "common_draws",
    "place",
    "place_distdgl",
    "place_explicit",
    "place_ifs",
    "place_random",
    "place_round_robin",
    "placement_bound",
    "resource_loads",
    "search",
    "search_etp",
    "with_placed_ring",
]
