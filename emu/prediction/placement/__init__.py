"""Place the tasks: IFS and ETP of the paper, baselines, and a better search.

Every algorithm takes a job and a cluster and returns a `Placement`; the searches also
say what its makespan is. Must not know: scenarios, sockets, clocks.
"""

from emu.prediction.placement.packing import resource_loads
from emu.prediction.placement.place import (
    affordable,
    best_placement,
    place,
)
from emu.prediction.placement.space import PlacementResult
from emu.prediction.placement_policies import PLACEMENT_POLICIES

__all__ = [
    "PLACEMENT_POLICIES",
    "PlacementResult",
    "affordable",
    "best_placement",
    "place",
    "resource_loads",
]
