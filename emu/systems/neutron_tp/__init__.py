"""NeutronTP (Ai et al., PVLDB 2024): parts share columns, not rows, of a graph."""

from __future__ import annotations

from emu.problem.workloads.column_slices import STAGES
from emu.systems.system import (
    AS_ONE_DEVICE,
    GRADIENT_MODULES,
    System,
    calling,
    equal_states,
    on_demand,
)

_SECTION = "emu.systems.neutron_tp.section"

#: What ``nodes`` runs for each kind; ``emu`` never imports it.
PROGRAMS = dict.fromkeys(STAGES, "emu_nodes.partition.tensor:Stage")

NEUTRON_TP = System(
    "neutron_tp",
    on_demand(f"{_SECTION}:NeutronTpSection"),
    programs=PROGRAMS,
    translation=on_demand(f"{_SECTION}:TRANSLATION"),
    trainer=AS_ONE_DEVICE,  # with all products ahead of all sums
    needs_torch=True,
    late_modules=GRADIENT_MODULES,
    open_data=calling("emu.graph_data:open_for"),
    step_kinds=("dense_gradient",),
    **equal_states("dense"),
    carries={
        ("dense", "aggregate"): "columns",
        ("aggregate", "score"): "rows",
        ("score", "aggregate_gradient"): "columns of gradients",
        ("aggregate_gradient", "dense_gradient"): "rows of gradients",
    },
)
