"""Times of gathers beside one another: t(S) of the plan, simulated, emulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.systems.dgcl.job import CARRIES
from emu.systems.dgcl.planner import Plan, peer_to_peer, spst
from emu.systems.dgcl.plans import (
    gradient_plan,
    needs_of_settings,
    open_plan,
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
    """Yield a line per gather: t(S), and the mean time in every schedule.

    A gather of a schedule lasts from when the first device begins its first stage to
    when the last one ends its last. Before them stands a line where planning cannot
    pay.
    """
    job = next(iter(schedules.values())).problem.job
    settings = job.settings
    plan, topology = open_plan(settings), read_topology(settings["topology"])
    if plan_cannot_pay(settings, topology):
        yield "no link is shared or slow: peer-to-peer is as good"
    backward = gradient_plan(plan, atomic=settings["backward"] == "atomic")
    plans = {"gather": plan, "scatter": backward}
    layers = sorted(
        {(t.kind, t.settings["layer"]) for t in job.tasks if t.kind in plans}
    )
    for kind, layer in layers:
        said = [
            f"{how} {format_duration(_mean_time(schedule, kind, layer))}"
            for how, schedule in schedules.items()
        ]
        first = next(iter(schedules.values()))
        seconds = _row_bytes(first, kind, layer, plans[kind]) * (
            plans[kind].cost(topology)
        )
        where = f"gather of layer {layer}, {_WORDS[kind]}"
        yield f"{where}: t(S) {format_duration(seconds)}, {', '.join(said)}"


def plan_cannot_pay(settings: Mapping[str, object], topology: Topology) -> bool:
    """Return True where SPST finds no plan of a lower t(S) than peer-to-peer's."""
    needs = needs_of_settings(settings)
    direct = peer_to_peer(needs, topology.devices).cost(topology)
    return direct <= _WORTH * spst(needs, topology, seed=0, group=10).cost(topology)


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
