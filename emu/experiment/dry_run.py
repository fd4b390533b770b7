"""What is known of a run before anything is started: nothing about this host."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.analysis.late_replay import sensitivity
from emu.analysis.link_rates import peak_rate
from emu.scenario.run_sections import AUTO
from emu.simulation import simulate

if TYPE_CHECKING:
    from emu.scenario import Experiment


@dataclass(frozen=True)
class DryRun:
    """What the simulation of a scenario says of its run."""

    time_scale: float | None
    """Wall seconds per emulated second; None where trials choose it."""
    byte_scale: float
    """Real bytes per emulated byte."""
    makespan: float
    """Emulated seconds."""
    processes: int
    flows: int
    """Node processes; flows between machines."""
    payload: float
    waiting: float
    """Real bytes of all flows, and of what may wait at receivers at a time, at most:
    what two iterations bring."""
    wall_seconds: float | None
    """Of the run, without its start; None where ``time_scale`` is."""
    peak_traffic: float | None
    """Real bytes per wall second of all flows together, at most; None likewise."""
    sensitivity: float
    """Share by which the slightest delays move the makespan, whatever the host."""

    def to_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self)


def dry_run(experiment: Experiment) -> DryRun:
    """Return what is known of an experiment's run before it is started."""
    problem, policy = experiment.problem, experiment.chosen_policy()
    realization, profile = experiment.realization, experiment.expected
    schedule = simulate(
        problem, realization, policy, profile=profile, record_rates=True
    )
    emulation = experiment.scenario.emulation
    scale, byte_scale = emulation.stated_time_scale, emulation.stated_byte_scale
    stated = emulation.time_scale != AUTO
    sent = np.nan_to_num(schedule.flow_bytes)
    return DryRun(
        time_scale=scale if stated else None,
        byte_scale=byte_scale,
        makespan=schedule.makespan,
        processes=len(problem.job.processes),
        flows=len(schedule.flows()),
        payload=float(sent.sum()) * byte_scale,
        waiting=float(2 * sent.sum(axis=0).max(initial=0.0)) * byte_scale,
        wall_seconds=schedule.makespan * scale if stated else None,
        peak_traffic=peak_rate(schedule) * byte_scale / scale if stated else None,
        sensitivity=sensitivity(realization, policy, profile, schedule),
    )
