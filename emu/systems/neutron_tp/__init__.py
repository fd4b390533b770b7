"""NeutronTP (Ai et al., PVLDB 2024): parts share columns, not rows, of a graph."""

from __future__ import annotations

from emu.problem import Job
from emu.problem.workloads import parameter_count
from emu.problem.workloads.column_slices import STAGES
from emu.systems.system import AS_ONE_DEVICE, System, calling, on_demand

_SECTION = "emu.systems.neutron_tp.section"


def _first_tasks(job: Job) -> list[str]:
    return [task.name for task in job.tasks if task.kind == "dense"]


def _vectors(job: Job) -> dict[str, tuple[int, ...]]:
    from emu.graph_data import open_for  # noqa: PLC0415 - numpy

    dataset = open_for(job.settings)
    model = job.settings["model"]
    count = parameter_count(model, dataset.feature_length, dataset.classes)
    # All parts have the same state: the first one's makes a cut for all.
    return {"d0.dense": (count,)}


NEUTRON_TP = System(
    "neutron_tp",
    on_demand(f"{_SECTION}:NeutronTpSection"),
    programs=dict.fromkeys(STAGES, "emu_nodes.partition.tensor:Stage"),
    translation=on_demand(f"{_SECTION}:TRANSLATION"),
    trainer=AS_ONE_DEVICE,  # with all products ahead of all sums
    needs_torch=True,
    open_data=calling("emu.graph_data:open_for"),
    trained=lambda _, results: results["d0.dense"]["parameters"],
    step_kinds=("dense_gradient",),
    cuts=lambda job: dict.fromkeys(_first_tasks(job), ("d0.dense",)),
    vectors=_vectors,
    carries={
        ("dense", "aggregate"): "columns",
        ("aggregate", "score"): "rows",
        ("score", "aggregate_gradient"): "columns of gradients",
        ("aggregate_gradient", "dense_gradient"): "rows of gradients",
    },
)
