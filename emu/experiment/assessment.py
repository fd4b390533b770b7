"""Assess a run: its verdict, and where it parted from its simulation."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from emu.analysis.critical_path import critical_path
from emu.analysis.error_budget import error_budget, send_rows
from emu.lab.kernel_network import burst_of
from emu.runs.audit_inputs import gathered, stated_volumes
from emu.systems.registry import system_guards
from emu.trust.guards import examine
from emu.trust.host_summary import host_figures
from emu.trust.lateness import chain_lateness, clock_doubt
from emu.trust.perturbed_replay import host_effect, sensitivity
from emu.trust.verdict import decide

if TYPE_CHECKING:
    from emu.coordinator.outcome import EmulatedRun
    from emu.coordinator.settings import EmulationSettings
    from emu.problem import Schedule
    from emu.scenario import Experiment
    from emu.trust.guards import Evidence


def judgement(
    experiment: Experiment,
    settings: EmulationSettings,
    run: EmulatedRun,
    replayed: Schedule,
) -> dict[str, Any]:
    """Return the keys ``verdict`` and ``error_budget`` of result.json."""
    emulated, problem = run.schedule, experiment.problem
    chain, policy = critical_path(emulated), experiment.chosen_policy()
    figures = host_figures(run.statistics)
    held, judged = emulated.makespan, emulated
    first: dict[tuple[int, int], float] = {}
    by_kernel = experiment.scenario.emulation.network == "kernel"
    if by_kernel:
        # What kernel NICs made of the makespan is the finding there, not a doubt about
        # this computer; no sender was to keep to rates.
        held = replayed.makespan
        judged = dataclasses.replace(emulated, rates=None)
        figures = dataclasses.replace(figures, late_sends=0, max_behind=0.0)
        first = first_bytes(run)
    verdict = decide(
        host_effect(
            problem,
            policy,
            experiment.expected,
            emulated=held,
            simulated=replayed.makespan,
            measured=run.realization,
            perturbed=run.perturbed,
            late=run.late,
            clocks=clock_doubt(chain, problem, run.hosts) / settings.time_scale,
        ),
        chain_lateness(judged, run.late, chain),
        figures,
        time_scale=settings.time_scale,
        max_error=experiment.scenario.emulation.max_error,
        processes=len(problem.job.processes),
        compute=settings.compute,
        sensitivity=sensitivity(run.realization, policy, experiment.expected, replayed),
        findings=examine(evidence(experiment, settings, run), system_guards()),
        by_kernel=by_kernel,
    )
    rows = send_rows(counted["flows"] for counted in run.statistics.values())
    budget = error_budget(judged, replayed, rows, chain, first)
    return {"verdict": verdict.to_json(), "error_budget": budget}


def first_bytes(run: EmulatedRun) -> dict[tuple[int, int], float]:
    """Return when the first bytes of (edge, iteration) arrived, run seconds."""
    return {
        (int(row["edge"]), int(row["iteration"])): float(row["first"])
        for row in run.received
    }


def evidence(
    experiment: Experiment, settings: EmulationSettings, run: EmulatedRun
) -> Evidence:
    """Return the guards' evidence; measured work may not undercut its CPU time."""
    times = experiment.realization.times
    if settings.compute == "real":
        times = run.cpu / experiment.problem.speeds[:, None]
    return gathered(
        run.schedule,
        run.sent,
        run.received,
        run.arrivals,
        run.statistics,
        time_scale=settings.time_scale,
        byte_scale=settings.byte_scale,
        flow_ends=settings.flow_ends,
        catch_up=settings.catch_up if math.isfinite(settings.catch_up) else None,
        burst=burst_of(experiment.scenario),
        times=times,
        volumes=stated_volumes(
            experiment.scenario, experiment.realization, settings.byte_scale
        ),
    )
