"""Times of gathers beside one another: t(S) of the plan, simulated, emulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.graph_data import open_layers
from emu.systems.dgcl.job import CARRIES
from emu.systems.dgcl.planner import Plan, lower_bound, peer_to_peer, spst
from emu.systems.dgcl.plans import (
    gradient_plan,
    needs_of_settings,
    open_plans,
    read_topology,
)
from emu.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from emu.problem import Schedule
    from emu.systems.dgcl.planner import Topology

#: Gain in t(S) below which planning does not pay.
_WORTH = 1.01
_WORDS = {"gather": "forward", "scatter": "backward"}


def gather_lines(schedules: Mapping[str, Schedule]) -> Iterator[str]:
    """Yield a line per gather: t(S), the mean time in every schedule, a bound on t(S).

    A gather of a schedule lasts from when the first device begins its first stage to
    when the last one ends its last. Before them stands what `plan_lines` yields.
    """
    first = next(iter(schedules.values()))
    job, settings = first.problem.job, first.problem.job.settings
    plans, topology = open_plans(settings), read_topology(settings["topology"])
    needs, atomic = needs_of_settings(settings), settings["backward"] == "atomic"
    if "emulated" not in schedules:  # else it was said before the run
        yield from plan_lines(settings)
    for kind, layer in sorted(
        {(t.kind, t.settings["layer"]) for t in job.tasks if t.kind in _WORDS}
    ):
        plan, least = plans[layer - 1], ""
        if not plan.stages:
            continue
        if kind == "scatter":
            plan = gradient_plan(plan, atomic=atomic)
        said = [
            f"{how} {format_duration(_mean_time(schedule, kind, layer))}"
            for how, schedule in schedules.items()
        ]
        size = _row_bytes(first, kind, layer, plan)
        if kind == "gather":
            bound = lower_bound(needs[layer - 1 if len(needs) > 1 else 0], topology)
            least = f"; no plan's t(S) is below {format_duration(size * bound)}"
        where = f"gather of layer {layer}, {_WORDS[kind]}"
        cost = format_duration(size * plan.cost(topology))
        yield f"{where}: t(S) {cost}, {', '.join(said)}{least}"


def plan_lines(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield what can be said of the plans of a job before it runs."""
    if settings["replicas"]:
        _, graphs = open_layers(settings)
        parts = [graphs[0].part(number) for number in range(graphs[0].parts)]
        kept = sum(len(part.local) + len(part.held) for part in parts)
        factor = kept / graphs[0].vertices
        yield f"devices keep {factor:.2f} times the vertices (replication factor)"
    if settings["plan"]["kind"] not in {"swap", "replication"} and plan_cannot_pay(
        settings, read_topology(settings["topology"])
    ):
        yield "SPST finds no plan of a lower t(S) than peer-to-peer's"


def plan_cannot_pay(settings: Mapping[str, Any], topology: Topology) -> bool:
    """Return True where SPST finds no plan of a lower t(S) than peer-to-peer's."""
    if boxes := settings["replicas"]:
        topology = topology.within(boxes)
    costs = [
        (peer_to_peer(needs, topology.devices), spst(needs, topology, seed=0, group=10))
        for needs in needs_of_settings(settings)
    ]
    direct, planned = (
        sum(p.cost(topology) for p in some) for some in zip(*costs, strict=True)
    )
    return bool(direct <= _WORTH * planned)


def _mean_time(schedule: Schedule, kind: str, layer: int) -> float:
    """Return the seconds of a gather, the mean of the epochs."""
    tasks = [
        position
        for position, task in enumerate(schedule.problem.job.tasks)
        if task.kind == kind and task.settings["layer"] == layer
    ]
    begin = np.min(schedule.task_start[tasks], axis=0)
    end = np.max(schedule.task_end[tasks], axis=0)
    return float(np.mean(end - begin))


def _row_bytes(schedule: Schedule, kind: str, layer: int, plan: Plan) -> float:
    """Return the bytes of a row of a gather, in the bytes of the schedule."""
    job = schedule.problem.job
    sent = sum(
        float(np.nansum(schedule.flow_bytes[number]))
        for number, edge in enumerate(job.edges)
        if (job.tasks[edge.source].kind, job.tasks[edge.destination].kind) in CARRIES
        and job.tasks[edge.source].kind == kind
        and job.tasks[edge.source].settings["layer"] == layer
    )
    return sent / max(int(plan.counts.sum()), 1) / job.iterations
