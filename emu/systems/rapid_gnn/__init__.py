"""RapidGNN (Niam et al., 2025): seeds are known, so a window's rows come ahead."""

from dataclasses import replace

from emu.systems.data_parallel import DATA_PARALLEL
from emu.systems.system import Variant, on_demand

_SECTION = "emu.systems.rapid_gnn.section"

RAPID_GNN = replace(
    DATA_PARALLEL,
    name="rapid_gnn",
    section=on_demand(f"{_SECTION}:RapidSection"),
    variants={"rapid_gnn": Variant("rapid_gnn", {"job.epoch": "local"})},
    knobs={"samplers_per_worker": (1, 2)},
    translation=on_demand(f"{_SECTION}:TRANSLATION"),
)
