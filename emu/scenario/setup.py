"""Setup of a training, what is sent before its time 0, as a scenario of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from emu.graph_data import open_for
from emu.problem import Job
from emu.problem.fields.cluster_section import MachineSection
from emu.problem.fields.quantities import DEFAULT_DEVICE
from emu.scenario.document import Data
from emu.scenario.experiment import Experiment, prepare
from emu.scenario.realize import build_job
from emu.scenario.scenario_file import load
from emu.systems.cache_section import settle_caches
from emu.systems.job_section import PRECOMPUTING
from emu.systems.rates_section import PLANNED
from emu.systems.system import list_transfers
from emu.units import SIZE

#: Bytes by cause, machine that sends, and machine that receives.
SetupBytes: TypeAlias = dict[tuple[str, str, str], float]
#: Sections of a training that its setup has not.
_OF_TRAINING = (
    "jobs",
    "place_jobs",
    "joint_cost",
    "placement",
    "events",
    "checkpoint",
    "failures",
    "on_failure",
    "max_restarts",
    "recovery",
    "until",
    "expect",
    "prices",
    "profile",
    "emulation.compute",
    "emulation.setup",
)
#: Keys of machines that it has: no resource that no task of it demands.
_OF_MACHINES = MachineSection.model_fields.keys() - {"price"}


def setup_bytes(experiment: Experiment) -> SetupBytes:
    """Return emulated bytes by cause, machine that sends, and another that receives.

    Caches that are filled before time 0 belong here. Raises DataError when the data set
    is missing, which with a profile nothing else needs, or damaged.
    """
    scale = experiment.scenario.emulation.stated_byte_scale
    machine_of = experiment.problem.machine_of_task
    sizes: SetupBytes = {}
    for prefix, job in jobs_as_placed(experiment):
        for cause, source, destination, size in list_transfers(job):
            sender = machine_of[prefix + source]
            receiver = machine_of[prefix + destination]
            key = (cause, sender, receiver)
            sizes[key] = sizes.get(key, 0.0) + size / scale

    sent = {}
    for key, size in sizes.items():
        _, sender, receiver = key
        # Tasks of one machine share its memory.
        if size and sender != receiver:
            sent[key] = size
    return sent


def jobs_as_placed(experiment: Experiment) -> Iterator[tuple[str, Job]]:
    """Yield what the names of a job's tasks begin with, and the job.

    Its caches are where its samplers stand: what fills them is sent there.
    """
    scenario = experiment.scenario
    machine_of = experiment.problem.machine_of_task
    # Several jobs each by itself: one alone knows what its system begins with.
    jobs = {}
    for item, part in scenario.parts():
        jobs[f"{item.name}/"] = build_job(part)
    if not jobs:
        jobs[""] = experiment.problem.job
    for prefix, job in jobs.items():
        places = {}
        for task in job.tasks:
            full_name = prefix + task.name
            places[task.name] = machine_of.get(full_name, "")
        yield prefix, settle_caches(job, places)


def setup_of(experiment: Experiment) -> Experiment | None:
    """Return `setup_bytes` as a job, a flow each, in order; None where nothing is sent.

    All begin at once, under the rule of the training and on its machines, a process
    each, without events: these have the clock of the training. Raises DataError as
    `setup_bytes`.
    """
    sizes = setup_bytes(experiment)
    if not sizes:
        return None

    scenario = experiment.scenario
    cluster = scenario.cluster.model_dump(mode="json", exclude_none=True)
    machines = []
    for machine in cluster["machines"]:
        kept = {key: value for key, value in machine.items() if key in _OF_MACHINES}
        machines.append(kept)
    cluster["machines"] = machines
    # None takes a key away: what only a training has.
    changes: dict[str, Any] = dict.fromkeys(_OF_TRAINING)
    changes["name"] = f"{scenario.name}-setup"
    changes["cluster"] = cluster
    changes["job"] = _job_of(sizes, scenario.cluster.names)
    setup = load(scenario, changes)
    return prepare(setup)


def _job_of(sizes: SetupBytes, machines: list[str]) -> Data:
    """Return a job with a task per machine and direction, for all that it sends."""
    # By number: a machine may be called what no task may, with a space or a slash.
    position = {name: number for number, name in enumerate(machines)}
    tasks: dict[str, dict[str, str]] = {}
    flows = []
    for (_, sender, receiver), size in sizes.items():
        flow = {"volume": SIZE.exact(size)}
        ends = {"from": sender, "to": receiver}
        for side, machine in ends.items():
            number = position[machine]
            name = f"{side}{number}"
            flow[side] = name
            tasks[name] = {
                "name": name,
                # To prepare what is sent takes none: its bytes are what is asked.
                "time": "0 s",
                "pin": machine,
                "process": f"setup{number}",
            }
        flows.append(flow)

    return {
        "system": "custom",
        "iterations": 1,
        "flows": flows,
        "tasks": list(tasks.values()),
    }


def setup_to_run(experiment: Experiment) -> Experiment | None:
    """Return `setup_of` where a run is to begin with it."""
    if not experiment.scenario.emulation.setup:
        return None
    return setup_of(experiment)


def planning_seconds(experiment: Experiment) -> dict[str, float]:
    """Return seconds of what is computed before time 0, by cause, where rates say so.

    One machine partitions and plans; what caches have to know each computes itself.
    Raises DataError as `setup_bytes`.
    """
    seconds: dict[str, float] = {}
    job = experiment.problem.job
    for _, prefix, section in experiment.scenario.each_job():
        rates = section.operation_rates
        if rates is None:
            continue
        settings = job.settings_of(prefix.rstrip("/"))
        rate_of = rates.on(DEFAULT_DEVICE)
        counts = section.precomputed(settings, job.iterations)
        for name, count in counts.items():
            length = rate_of[name] * count
            earlier = seconds.get(PRECOMPUTING, 0.0)
            seconds[PRECOMPUTING] = earlier + length

        has_planning = any(getattr(rates, name) for name in PLANNED)
        if not has_planning:
            continue
        dataset = open_for(settings)
        for name in section.planning(settings):
            cause = PLANNED[name]
            length = dataset.edges * getattr(rates, name)
            # Jobs that are there together are prepared one after the other.
            seconds[cause] = seconds.get(cause, 0.0) + length
    return {cause: length for cause, length in seconds.items() if length}


def setup_rows(experiment: Experiment) -> Data:
    """Return ``setup`` of result files, simulated; empty of what trains nothing.

    Raises DataError as `setup_bytes`.
    """
    trains = any(job.trains for *_, job in experiment.scenario.each_job())
    if not trains:
        return {}

    sizes = setup_bytes(experiment)
    setup = setup_of(experiment)
    planning = planning_seconds(experiment)
    seconds = 0.0
    ends: list[float] = []
    if setup is not None:
        schedule = setup.simulate()
        seconds = schedule.makespan
        ends = schedule.flow_end[:, 0].tolist()  # a row per flow, of one iteration

    causes: dict[str, dict[str, float]] = {}
    for cause, length in planning.items():
        causes[cause] = {"bytes": 0.0, "seconds": length}
    flows = []
    for (key, size), end in zip(sizes.items(), ends, strict=True):
        cause, sender, receiver = key
        no_bytes = {"bytes": 0.0, "seconds": 0.0}
        row = causes.setdefault(cause, no_bytes)
        row["bytes"] += size
        # All flows begin at once, so that a cause lasts as long as its last one.
        row["seconds"] = max(row["seconds"], end)
        flow = {
            "cause": cause,
            "from": sender,
            "to": receiver,
            "bytes": size,
            "end": end,
        }
        flows.append(flow)
    planning_length = sum(planning.values())
    return {
        # Nothing is sent before it is known where to.
        "seconds": planning_length + seconds,
        "bytes": sum(sizes.values()),
        "causes": causes,
        "flows": flows,
    }
