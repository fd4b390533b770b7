"""Bound how fast a training can be, before all of its mini-batches are drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from emu.prediction.scheduling.compiled_problem import Layout, job_arrays
from emu.prediction.scheduling.policies import rate_policy
from emu.prediction.scheduling.state import earliest
from emu.problem import Cluster
from emu.scenario import Scenario, build_job
from emu.scenario.own_rules import is_program
from emu.scenario.virtual_training import seeds_seen
from emu.systems.replica_section import ReplicaSection
from emu.systems.training_section import TrainingSection, open_fitting
from emu.training.looks import count_seeds

_ROUNDING = 1e-9  # relative, of a limit


def is_slower(scenario: Scenario, limit: float) -> bool | None:
    """Return whether one machine alone takes longer than a limit per seed; None: open.

    The job need not be built: of the machine with the slowest NIC the mini-batches are
    drawn, unless the times that the file states tell by themselves. False says nothing
    of other machines.

    Raises ScenarioError, DataError as `emu.scenario.prepare`.
    """
    section = scenario.job
    if not isinstance(section, ReplicaSection):
        return None
    if not _is_as_stated(scenario):
        return None

    context = scenario.build_context(opened=True)
    settings = section.data_settings(context)
    model = settings["model"]
    # The parameters of a program are noted when its job is built.
    if "program" in model and "parameters" not in model:
        return None
    dataset = open_fitting(settings)
    train = dataset.train_count
    context = replace(context, train_vertices=train)
    machines = section.ranks(context.machines)
    cluster = scenario.to_cluster()
    rates = [_most_of(cluster, name, side=1) for name in machines]
    rate_in = min(rates)
    rank = rates.index(rate_in)

    intake = section.intake(context, dataset, rank)
    if intake is None:
        return None

    seeds = count_seeds(settings, train, intake.batches)
    seconds = limit * int(seeds[-1])
    longest = seconds * (1 + _ROUNDING)
    # Volumes are emulated bytes, each of which stands for that many real ones.
    rate_out = _most_of(cluster, machines[rank], side=0)
    real_rate_out = rate_out * context.byte_scale
    longest -= intake.sum_bytes / real_rate_out
    if intake.least_seconds() > longest:
        return True

    real_rate_in = rate_in * context.byte_scale
    return intake.seconds_at(real_rate_in) > longest


def _is_as_stated(scenario: Scenario) -> bool:
    """Return True where nothing may make machines faster, or wants to be asked."""
    if _is_decided_elsewhere(scenario) or scenario.events:
        return False
    is_own_rule = is_program(scenario.schedule.policy)
    return scenario.failures is None and not is_own_rule


def _most_of(cluster: Cluster, machine: str, *, side: int) -> float:
    """Return the most that a machine sends (0) or takes in (1) per second."""
    links = cluster.links
    position = cluster.index(machine)
    # A NIC bounds no machine that has none, or a route past it.
    if not links.always_crossed(position, side):
        return np.inf
    port = links.nic[position, side]
    capacity = links.steps.most[port]
    return float(capacity)


def least_seconds(scenario: Scenario) -> float:
    """Return seconds per seed that no schedule of a training beats; 0 where not known.

    Its tasks take the times that the file states, and its flows none.

    Raises ScenarioError, DataError as `build_job`.
    """
    section = scenario.job
    if not isinstance(section, TrainingSection) or _is_decided_elsewhere(scenario):
        return 0.0

    job = build_job(scenario)
    times = section.stated_seconds(job)
    # Where tasks may move, or take longer on some machines, placement decides.
    is_slower = any(task.slowness for task in job.tasks)
    if times is None or is_slower or not job.fixed:
        return 0.0

    # Handoffs within a machine take no time: so none of its flows does on a single one.
    arrays = job_arrays(job, scenario.to_cluster(), rate_policy("oes"))
    layout = Layout(arrays, np.zeros(len(job.tasks), np.int64))
    no_bytes = np.zeros((len(job.edges), job.iterations))
    _, ends = earliest(layout, times, no_bytes)
    seeds = seeds_seen(job) or 1
    return float(ends.max()) / seeds


def _is_decided_elsewhere(scenario: Scenario) -> bool:
    """Return True where times or lengths are not as the job states them."""
    deciders = (scenario.profile, scenario.until, scenario.checkpoint)
    has_decider = any(decider is not None for decider in deciders)
    return bool(scenario.jobs) or has_decider
