"""NeutronTP (Ai et al., PVLDB 2024): parts share columns, not rows, of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.problem import Job
from emu.problem.workloads import parameter_count
from emu.problem.workloads.column_slices import STAGES
from emu.systems.system import (
    AS_ONE_DEVICE,
    GRADIENT_MODULES,
    System,
    calling,
    on_demand,
)

if TYPE_CHECKING:
    from emu.systems.system import Holders, Lengths

_SECTION = "emu.systems.neutron_tp.section"
#: The task whose state makes a cut, and its parameters those of the job.
_FIRST = "d0.dense"


def _tasks_with_state(job: Job) -> Holders:
    """Return that all parts begin with the state of the first one."""
    tasks = [task.name for task in job.tasks if task.kind == "dense"]
    return dict.fromkeys(tasks, (_FIRST,))


def _vectors(job: Job) -> Lengths:
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy

    dataset = open_for(job.settings)
    model = job.settings["model"]
    count = parameter_count(model, dataset.feature_length, dataset.classes)
    # All parts have the same state: the first one's makes a cut for all.
    return {_FIRST: (count,)}


NEUTRON_TP = System(
    "neutron_tp",
    on_demand(f"{_SECTION}:NeutronTpSection"),
    programs=dict.fromkeys(STAGES, "emu_nodes.partition.tensor:Stage"),
    translation=on_demand(f"{_SECTION}:TRANSLATION"),
    trainer=AS_ONE_DEVICE,  # with all products ahead of all sums
    needs_torch=True,
    late_modules=GRADIENT_MODULES,
    open_data=calling("emu.graph_data:open_for"),
    trained=lambda _, results: results[_FIRST]["parameters"],
    step_kinds=("dense_gradient",),
    cuts=_tasks_with_state,
    vectors=_vectors,
    carries={
        ("dense", "aggregate"): "columns",
        ("aggregate", "score"): "rows",
        ("score", "aggregate_gradient"): "columns of gradients",
        ("aggregate_gradient", "dense_gradient"): "rows of gradients",
    },
)
