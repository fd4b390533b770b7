"""Setup of a training, what is sent before its time 0, as a scenario of its own."""

from __future__ import annotations

from typing import Any

from emu.problem.fields.cluster_section import MachineSection
from emu.scenario.experiment import Experiment, prepare
from emu.scenario.realize import build_job
from emu.scenario.scenario_file import load
from emu.systems.cache_section import settle_caches
from emu.systems.system import list_transfers
from emu.units import SIZE

#: Sections of a training that its setup has not.
_OF_TRAINING = (
    "jobs", "place_jobs", "joint_cost", "placement", "events", "checkpoint", "failures",
    "on_failure", "max_restarts", "recovery", "until", "expect", "prices", "profile",
    "emulation.compute", "emulation.setup",
)  # fmt: skip
#: Keys of machines that it has: no resource that no task of it demands.
_OF_MACHINES = MachineSection.model_fields.keys() - {"price"}


def setup_bytes(experiment: Experiment) -> dict[tuple[str, str, str], float]:
    """Return emulated bytes by cause, machine that sends, and another that receives.

    Caches that are filled before time 0 belong here. Raises DataError when the data set
    is missing, which with a profile nothing else needs, or damaged.
    """
    scenario = experiment.scenario
    problem = experiment.problem
    scale = scenario.emulation.stated_byte_scale
    machine_of = problem.machine_of_task
    sizes: dict[tuple[str, str, str], float] = {}
    parts = {f"{item.name}/": build_job(alone) for item, alone in scenario.parts()}
    for prefix, job in (parts or {"": problem.job}).items():
        names = [task.name for task in job.tasks]
        places = {name: machine_of.get(prefix + name, "") for name in names}
        for cause, source, to, size in list_transfers(settle_caches(job, places)):
            key = cause, machine_of[prefix + source], machine_of[prefix + to]
            sizes[key] = sizes.get(key, 0.0) + size / scale
    return {key: size for key, size in sizes.items() if size and key[1] != key[2]}


def setup_of(experiment: Experiment) -> Experiment | None:
    """Return `setup_bytes` as a job, a flow each, in order; None where nothing is sent.

    All begin at once, under the rule of the training and on its machines, a process
    each, without events: these have the clock of the training. Raises DataError as
    `setup_bytes`.
    """
    scenario = experiment.scenario
    if not (sizes := setup_bytes(experiment)):
        return None
    position = {name: n for n, name in enumerate(scenario.cluster.names)}
    cluster = scenario.cluster.model_dump(mode="json", exclude_none=True)
    cluster["machines"] = [
        {key: value for key, value in machine.items() if key in _OF_MACHINES}
        for machine in cluster["machines"]
    ]
    tasks = {}
    flows = []
    for (_, *ends), size in sizes.items():
        flow = {"volume": SIZE.exact(size)}
        for side, machine in zip(("from", "to"), ends, strict=True):
            name = flow[side] = f"{side}{position[machine]}"
            place = {"pin": machine, "process": f"setup{position[machine]}"}
            tasks[name] = {"name": name, "time": "0 s", **place}
        flows.append(flow)
    job = {"system": "custom", "iterations": 1, "flows": flows}
    job["tasks"] = [*tasks.values()]
    own = {"name": f"{scenario.name}-setup", "cluster": cluster, "job": job}
    return prepare(load(scenario, dict.fromkeys(_OF_TRAINING) | own))


def setup_to_run(experiment: Experiment) -> Experiment | None:
    """Return `setup_of` where a run is to begin with it."""
    return setup_of(experiment) if experiment.scenario.emulation.setup else None


def setup_rows(experiment: Experiment) -> dict[str, Any]:
    """Return ``setup`` of result files, simulated; empty of what trains nothing.

    Raises DataError as `setup_bytes`.
    """
    if not any(job.trains for *_, job in experiment.scenario.each_job()):
        return {}
    sizes = setup_bytes(experiment)
    setup = setup_of(experiment)
    schedule = setup and setup.simulate()
    ends = schedule.flow_end[:, 0].tolist() if schedule else []
    causes: dict[str, dict[str, float]] = {}
    flows = []
    for ((cause, source, to), size), end in zip(sizes.items(), ends, strict=True):
        row = causes.setdefault(cause, {"bytes": 0.0, "seconds": 0.0})
        row["bytes"] += size
        row["seconds"] = max(row["seconds"], end)
        flow = {"cause": cause, "from": source, "to": to, "bytes": size, "end": end}
        flows.append(flow)
    seconds = schedule.makespan if schedule else 0.0
    total = sum(sizes.values())
    return {"seconds": seconds, "bytes": total, "causes": causes, "flows": flows}
