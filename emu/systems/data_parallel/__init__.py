"""Data parallel training as DGL does it: features are pulled, gradients summed."""

from __future__ import annotations

from dataclasses import replace

from emu.systems.dgtp import DGTP
from emu.systems.system import Variant, on_demand

_SECTION = "emu.systems.data_parallel.section"

#: Its programs, weights and steps are those of DGTP's workers that sum gradients.
DATA_PARALLEL = replace(
    DGTP,
    name="data_parallel",
    section=on_demand(f"{_SECTION}:DataParallelJobSection"),
    parameter_kinds=(),
    variants={
        "data_parallel": Variant("data_parallel"),
        "one_machine": Variant("data_parallel", alone=True),
    },
    knobs={"samplers_per_worker": (1, 2), "partitioner": ("hash", "metis")},
    translation=on_demand(f"{_SECTION}:TRANSLATION"),
)
