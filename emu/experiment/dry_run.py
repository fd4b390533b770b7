"""Forecast a run before anything is started: nothing about this host."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import numpy as np

from emu.emulation.launch.host_report import usable_cores
from emu.emulation.launch.programs import are_many_for, share_machine
from emu.emulation.wire.frame_layout import WireLimits
from emu.errors import DataError, ScenarioError
from emu.experiment.machine_memory import most_waiting
from emu.graph_data.sources import source_of
from emu.host.foreign_code import INSTALL_TORCH, is_installed
from emu.host.this_host import memory
from emu.prediction.analysis.full_queues import FullQueues, full_queues
from emu.prediction.analysis.link_load import peak_rate
from emu.prediction.simulation import simulate
from emu.problem import Schedule
from emu.scenario import Experiment, Scenario
from emu.scenario.run_sections import AUTO
from emu.scenario.setup import setup_to_run
from emu.trust.lateness import effect_of_slight_delays
from emu.units import format_duration, format_rate, format_ratio, format_size

#: Bytes of the command with its agent, and of a process: without torch's models 12 to
#: 20 MB of each of 120 were its own.
_COMMAND = 4e8
_PROCESS = 4e7
#: And of each that shares a process with others of its machine: 250 in one had 0.3 MB
#: of memory each, with two edges out and two in.
_SHARING = 1e6
#: Bytes that torch takes once it computes, of a process that trains: with small models
#: it had 105 to 155 MB of its own instead of 15 to 40. And of the command, which learns
#: what the weights are worth: 334 MB where it made the graph.
_TORCH = 1.2e8
_LEARNT = 2e8
#: Tensors of a process that trains, in sizes of its largest payload: parameters with
#: gradients, two moments and a copy on its way, or a batch with what each layer keeps.
_TENSORS = 6
#: Wall seconds of a core that an end of a task or flow takes, at least, and the share
#: of one TCP connection that remains for payloads: processes pace and log them too.
#: Both are estimates; no series of runs, trusted and untrusted, was taken to fit them.
_END = 5e-4
_LEFT = 0.5


@dataclass(frozen=True)
class DryRun:
    """Figures of a run from the simulation of its scenario."""

    time_scale: float | None
    """Wall seconds per emulated second; None where trials choose it."""
    byte_scale: float
    """Real bytes per emulated byte."""
    makespan: float
    """Emulated seconds."""
    processes: int
    flows: int
    ends: int
    """Node processes; flows between machines; ends of tasks and of these flows."""
    payload: float
    waiting: float
    """Real bytes of all flows, and of what payloads may hold at a time, at most, those
    that stay on a machine included."""
    memory: float
    """Bytes that payloads and processes may hold at a time, at most."""
    wall_seconds: float | None
    """Duration of the run, without its start; None where ``time_scale`` is."""
    peak_traffic: float | None
    """Real bytes per wall second of all flows together, at most; None likewise."""
    sensitivity: float
    """Share by which the slightest delays move the makespan, whatever the host."""
    tcp: FullQueues | None = None
    """Queues that TCP fills; None unless it shares kernel NICs at a known scale."""

    def rows(self) -> list[tuple[str, str]]:
        """Return the figures in words, a pair of label and text each."""
        scale = "chosen by trials"
        if self.time_scale is not None:
            scale = f"{self.time_scale:g}"
        rows = [
            ("time scale", scale),
            ("byte scale", f"{self.byte_scale:g}"),
            ("simulated makespan", format_duration(self.makespan, 4)),
            ("processes", str(self.processes)),
            ("flows between machines", str(self.flows)),
            ("real payload", format_size(self.payload)),
            ("of it in memory at a time, at most", format_size(self.waiting)),
            ("memory with all processes, at most", format_size(self.memory)),
            ("makespan moved by the slightest delays", format_ratio(self.sensitivity)),
        ]
        if self.wall_seconds is not None and self.peak_traffic is not None:
            rows.append(("wall time", format_duration(self.wall_seconds, 3)))
            rows.append(("real traffic at its peak", format_rate(self.peak_traffic)))

        if self.tcp:
            risk = f"{self.tcp.at_risk:,}"
            longer = format_ratio(self.tcp.older_first)
            rows.append(("flows that begin where TCP fills a queue", risk))
            rows.append(("makespan moved by older connections first", longer))
        return rows


def dry_run(experiment: Experiment) -> DryRun:
    """Return the figures of an experiment's run that are known before its start."""
    problem = experiment.problem
    realization = experiment.realization
    profile = experiment.expected
    emulation = experiment.scenario.emulation
    policy = experiment.choose_policy()
    schedule = simulate(
        problem, realization, policy, profile=profile, record_rates=True
    )
    scale = emulation.stated_time_scale
    byte_scale = emulation.stated_byte_scale
    is_explicit = emulation.time_scale != AUTO
    waiting = _most_waiting(experiment, schedule) * byte_scale
    processes = len(problem.job.processes)
    host_processes = count_host_processes(experiment)
    sharing = processes - host_processes
    flows = len(schedule.flows())
    memory = waiting + _COMMAND + host_processes * _PROCESS + sharing * _SHARING
    payload = np.nan_to_num(schedule.flow_bytes).sum()
    memory += training_memory(experiment, byte_scale)
    wall_seconds = None
    peak_traffic = None
    if is_explicit:
        wall_seconds = schedule.makespan * scale
        peak_traffic = peak_rate(schedule) * byte_scale / scale

    return DryRun(
        time_scale=scale if is_explicit else None,
        byte_scale=byte_scale,
        makespan=schedule.makespan,
        processes=processes,
        flows=flows,
        ends=schedule.task_end.size + flows,
        payload=float(payload) * byte_scale,
        waiting=waiting,
        memory=memory,
        wall_seconds=wall_seconds,
        peak_traffic=peak_traffic,
        sensitivity=effect_of_slight_delays(realization, policy, profile, schedule),
        tcp=_full_queues(experiment, schedule),
    )


def _most_waiting(experiment: Experiment, schedule: Schedule) -> float:
    """Return the emulated bytes that payloads hold at a time, also before time 0."""
    waiting = most_waiting(schedule, experiment.realization.volumes)
    setup = setup_to_run(experiment)
    # Its processes have ended by then, so that only one of the two counts.
    if setup:
        of_setup = most_waiting(setup.simulate(), setup.realization.volumes)
        waiting = max(waiting, of_setup)
    return waiting


def count_host_processes(experiment: Experiment) -> int:
    """Return how many processes of a system carry the processes of a run on this host.

    Fewer than these where those of a machine share one (``emulation.processes``).
    """
    problem = experiment.problem
    processes = problem.job.processes
    settings = experiment.scenario.emulation.settings
    has_kills = bool(experiment.scenario.kills(problem))
    settings = replace(settings, processes=settings.grouping(has_kills=has_kills))
    are_many = are_many_for(len(processes), usable_cores())
    if not share_machine(settings, are_many=are_many):
        return len(processes)

    machine_of = problem.placement.machine_of
    machines = set()
    for tasks in processes.values():
        first_task = tasks[0]
        machines.add(machine_of[first_task])
    return len(machines)


def _full_queues(experiment: Experiment, schedule: Schedule) -> FullQueues | None:
    """Return the queues that TCP fills; None where it does not share kernel NICs."""
    emulation = experiment.scenario.emulation
    by_tcp = emulation.network == "kernel" and emulation.sharing == "tcp"
    if emulation.time_scale == AUTO or not by_tcp:
        return None
    # FIFO stands for what TCP tends to: who fills a queue first keeps it.
    older = simulate(experiment.problem, experiment.realization, "fifo")
    return full_queues(
        schedule,
        time_scale=emulation.stated_time_scale,
        byte_scale=emulation.stated_byte_scale,
        older_first=older.makespan,
    )


def training_memory(experiment: Experiment, byte_scale: float) -> float:
    """Return the bytes that training takes beside payloads, of all processes.

    Only what computes has them: with ``timed`` no process touches torch, nor do those
    of Dorylus, whose lambdas had 20 MB each.
    """
    scenario = experiment.scenario
    job = experiment.problem.job
    trains = _who_trains(scenario)
    total = _LEARNT if any(trains.values()) else 0.0
    if scenario.emulation.compute == "timed":
        return total

    largest_payloads = experiment.realization.volumes.max(axis=1, initial=0.0)
    largest = (largest_payloads * byte_scale).tolist()
    for numbers in job.processes.values():
        learners = set()
        for number in numbers:
            task = job.tasks[number]
            if trains[task.job_name] and task.phase != "sampling":
                learners.add(number)
        # The largest payload of a process tells the size of what it keeps.
        payload = 0.0
        for edge, size in zip(job.edges, largest, strict=True):
            if edge.source in learners or edge.destination in learners:
                payload = max(payload, size)
        total += _TENSORS * payload
        phases = {job.tasks[number].phase for number in learners}
        if "training" in phases:
            total += _TORCH
    return total


def strain(known: DryRun, cores: int, loopback: float | None) -> str:
    """Return a warning of loads too fast for this host and scales; empty for none.

    By two stated estimates, not measured: a run without a warning may still be late.
    ``loopback`` is bytes per second of one TCP connection; None where not measured.
    """
    scale = known.time_scale
    wall = known.wall_seconds
    if scale is None or not wall or known.peak_traffic is None:
        return ""

    busy = known.ends * _END / cores / wall
    warnings = []
    if busy > 1:
        ends_per_second = known.ends / wall
        warnings.append(f"{ends_per_second:.3g} ends of tasks and flows per second")
    capacity = inf
    if loopback is not None:
        # A connection keeps two cores busy, its sender's and its receiver's.
        capacity = _LEFT * loopback * max(cores / 2, 1)
    if known.peak_traffic > capacity:
        peak = format_rate(known.peak_traffic)
        most = format_rate(capacity)
        warnings.append(f"{peak} at the peak, where {most} are carried")
    if not warnings:
        return ""
    # Twice as much is advised: both estimates are of the least that is needed.
    enough = 2 * scale * max(busy, known.peak_traffic / capacity)
    reasons = "; ".join(warnings)
    return (
        f"too fast for this host with {cores} cores: {reasons}: state "
        f"emulation.time_scale: auto, or {enough:.2g} or more"
    )


def check_memory(known: DryRun, window: object) -> None:
    """Refuse a run on this host alone that needs more memory than is free here.

    Raises ScenarioError with the numbers, and what to change.
    """
    free = memory("available")
    if free is not None and known.memory > free:
        need = format_size(known.memory)
        waiting = format_size(known.waiting)
        room = format_size(free)
        raise ScenarioError(
            f"{need} of memory may be needed, of it "
            f"{waiting} for payloads that wait, and this host has "
            f"{room} free: state a smaller emulation.byte_scale or a "
            f"job.credit_window below {window}, or run it on several hosts",
            key="emulation.byte_scale",
        )


def check_messages(experiment: Experiment) -> None:
    """Refuse a flow that sends more than one message takes; it would end the run.

    That of the setup with which a run is to begin, too. Raises ScenarioError with its
    name, or machines, and what to change; DataError as `setup_to_run`.
    """
    setup = setup_to_run(experiment)
    if setup is not None:
        _check_setup(setup, experiment.scenario)
    scenario = experiment.scenario
    most = WireLimits().body
    edge, size = _largest_payload(experiment)
    if size <= most:
        return

    job = experiment.problem.job
    problem = (
        f"flow {job.edge_names[edge]} sends {format_size(size)} in an iteration, and a "
        f"message takes {format_size(most)}: "
    )
    source = job.tasks[job.edges[edge].source]
    if _who_trains(scenario)[source.job_name]:
        # A scale makes more emulated bytes of it, and no fewer real ones.
        problem += "tensors are as large at any byte_scale, have it send less"
        trail = ("jobs",) if scenario.jobs else ("job",)
        raise scenario.origin.error(trail, problem)

    # Two digits may be a twentieth more.
    enough = 0.9 * most / size * scenario.emulation.stated_byte_scale
    problem += f"write {enough:.2g} or less"
    raise scenario.origin.error(("emulation", "byte_scale"), problem)


def _check_setup(setup: Experiment, scenario: Scenario) -> None:
    """Refuse a setup of a scenario with a flow that is larger than a message."""
    most = WireLimits().body
    position, size = _largest_payload(setup)
    if size <= most:
        return

    job = setup.problem.job
    machine_of = setup.problem.machine_of_task
    edge = job.edges[position]
    sender = machine_of[job.tasks[edge.source].name]
    receiver = machine_of[job.tasks[edge.destination].name]
    # These are tensors, as large at any byte scale.
    raise scenario.origin.error(
        ("emulation", "setup"),
        f"{sender} sends {format_size(size)} to {receiver} before time 0, and a "
        f"message takes {format_size(most)}: write false: emu simulate has its time",
    )


def _largest_payload(experiment: Experiment) -> tuple[int, float]:
    """Return the flow with the largest message of a run, by position, and its bytes."""
    volumes = experiment.realization.volumes
    if not volumes.size:
        return 0, 0.0
    edge = int(volumes.max(axis=1).argmax())
    byte_scale = experiment.scenario.emulation.stated_byte_scale
    return edge, float(volumes[edge].max()) * byte_scale


def _who_trains(scenario: Scenario) -> dict[str, bool]:
    """Return whether a job trains, by its name; a job alone has none."""
    trains = {item.name: part.job.trains for item, part in scenario.parts()}
    return trains or {"": scenario.job.trains}


def check_ready(scenario: Scenario, runs: Path, *, here: bool = True) -> None:
    """Look for torch where the job trains, for its data sets, and for room to write.

    ``runs`` will take the run directory, and nothing is left there. ``here`` is whether
    this host carries processes of the run. Raises DataError when one of them is
    missing; says what to do.
    """
    parts = [part for _, part in scenario.parts()] if scenario.jobs else [scenario]
    for part in parts:
        if not part.job.trains:
            continue
        if here and not is_installed("torch"):
            problem = "this job trains, and torch is not installed on this host"
            raise DataError(f"{problem}: {INSTALL_TORCH}")
        settings = part.to_job(train_vertices=1).settings
        source_of(settings["dataset"])

    # A folder is made and removed: what permissions say does not hold for root.
    folders = (runs, *runs.absolute().parents)
    parent = next(path for path in folders if path.exists())
    try:
        folder = tempfile.mkdtemp(prefix=".emu-", dir=parent)
        Path(folder).rmdir()
    except OSError as error:
        problem = f"cannot make a run directory here: {error.strerror}; choose another "
        raise DataError(f"{problem}with --runs", path=runs) from error
