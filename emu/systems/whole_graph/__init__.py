"""WholeGraph (Yang et al., SC 2022): rows lie in memory of all devices, by hash."""

from dataclasses import replace

from emu.systems.data_parallel import DATA_PARALLEL
from emu.systems.system import Variant, on_demand

_SECTION = "emu.systems.whole_graph.section"

WHOLE_GRAPH = replace(
    DATA_PARALLEL,
    name="whole_graph",
    section=on_demand(f"{_SECTION}:WholeGraphJobSection"),
    variants={"whole_graph": Variant("whole_graph")},
    knobs={"samplers_per_worker": (1, 2)},
    translation=on_demand(f"{_SECTION}:TRANSLATION"),
)
