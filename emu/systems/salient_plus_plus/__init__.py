"""SALIENT++ (Kaler et al., MLSys 2023): likely rows are kept, others come early."""

from dataclasses import replace

from emu.systems.data_parallel import DATA_PARALLEL
from emu.systems.system import Variant, on_demand

_SECTION = "emu.systems.salient_plus_plus.section"

#: Its programs, weights and steps are those of replicas that pull features.
SALIENT_PLUS_PLUS = replace(
    DATA_PARALLEL,
    name="salient_plus_plus",
    section=on_demand(f"{_SECTION}:SalientSection"),
    # Every machine trains on the training vertices of its own part.
    variants={
        "salient_plus_plus": Variant("salient_plus_plus", {"job.epoch": "local"})
    },
    knobs={"samplers_per_worker": (1, 2)},
    translation=on_demand(f"{_SECTION}:TRANSLATION"),
)
