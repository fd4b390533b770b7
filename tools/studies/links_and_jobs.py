"""Links, slots, rings and neighbours' jobs over sockets, against their predictions.

    tools/study links_and_jobs OUT --only golden    # hops, executors, jobs, ring
    tools/study links_and_jobs OUT --only racks [--uplink '50 Gbit/s']
    tools/study links_and_jobs OUT --only ring      # testbed: parameter server, rings
    tools/study links_and_jobs OUT --only share     # two jobs at once, by flow, by job

``golden`` are the cases with an exact result, under every policy that has one;
``racks`` is DGTP's job on two racks with such an uplink, placed by ETP.
"""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from emu.analysis.pace import job_times
from emu.experiment.run_experiment import carry_out
from emu.scenario import load, prepare
from emu.scenario.scenario_file import loads
from emu.scheduling import RATE_POLICIES
from tests.golden.cases import Case, cases, exactly, problem_of, with_gates
from tests.scenario.test_jobs import document
from tools.runner import Study
from tools.trials.trial import Trial, attempt

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from emu.experiment.run_experiment import ExperimentOutcome
    from tools.runner import Work

_BASE = "testbed_products"
#: Time scale of golden cases, and the wall seconds that each lasts at least.
_TIME_SCALE, _WALL = 0.25, 1.5
#: What sums the gradients, and where the workers stand in the ring.
_SUMS = {
    "parameter server": [],
    "ring": ["job.sync=ring"],
    "placed ring": ["job.sync=ring", "job.ring=placed"],
}


def options(parser: ArgumentParser) -> None:
    """Add how golden cases are scaled, and the racks."""
    parser.add_argument("--scale", type=float, help="time scale of golden cases")
    parser.add_argument("--uplink", default="50 Gbit/s", help="of racks")


def work(options: Namespace) -> Iterator[Work[Trial]]:
    """Yield the cases of all four parts."""
    yield from golden(options)
    for policy in ("oes", "maxmin", "fifo"):
        case = f"racks {options.uplink} {policy}"
        yield case, partial(racks, options, case, policy)
    for name in _SUMS:
        yield f"ring: {name}", partial(ring, options, name)
    for how in ("flow", "job"):
        yield f"share: {how}", partial(share, options, how)


def golden(options: Namespace) -> Iterator[Work[Trial]]:
    """Yield every golden case under every policy that has an exact result."""
    for file in ("hops", "executors", "jobs", "ring"):
        for case in cases(file):
            for policy in filter(RATE_POLICIES.__contains__, case.results):
                (exact,) = exactly([case.results[policy]["makespan"]])
                scale = options.scale or max(_TIME_SCALE, _WALL / exact)
                content = document(case) if file == "jobs" else stated(case)
                content |= {"name": case.name, "schedule": {"policy": policy}}
                content["emulation"] = {
                    "byte_scale": 50_000,
                    "deadline": "60 s",
                    "time_scale": float(scale),
                }
                name = f"golden: {file}/{case}/{policy}"
                yield name, partial(run, options, name, content)


def run(options: Namespace, case: str, content: dict[str, Any]) -> list[Trial]:
    """Return the row of a scenario over sockets."""
    scenario = loads(json.dumps(content))
    return [attempt(case, prepare(scenario), options.out / "runs")]


def stated(case: Case) -> dict[str, Any]:
    """Return a golden case as a scenario of one custom job."""
    job = case.job
    problem = with_gates(*problem_of(case))
    machines = []
    for name, machine in job["machines"].items():
        nic = {way: f"{machine[way]} B/s" for way in ("in", "out") if way in machine}
        slots = machine.get("slots", {})
        machines.append({"name": name, "nic": nic or "none", "slots": slots})
    ends = {f"{name} {way}": way for name in job["machines"] for way in ("in", "out")}
    return {
        "name": case.name,
        "cluster": {
            "machines": machines,
            "links": [
                {"name": name, "bandwidth": f"{rate} B/s"}
                for name, rate in job.get("links", {}).items()
            ],
            "routes": [
                {
                    "from": [pair.split(">")[0]],
                    "to": [pair.split(">")[1]],
                    "through": [ends.get(port, port) for port in through],
                }
                for pair, through in job.get("routes", {}).items()
            ],
        },
        "job": {
            "system": "custom",
            "iterations": job["iterations"],
            "credit_window": "unlimited",
            "tasks": [
                _task(t, gate=problem.job.tasks[j].gate)
                for j, t in enumerate(job["tasks"])
            ],
            "flows": [
                {
                    "from": flow["from"],
                    "to": flow["to"],
                    "volume": _with("B", flow["volume"]),
                    "lag": flow.get("lag", 0),
                }
                for flow in job["flows"]
            ],
        },
        "placement": {
            "policy": "explicit",
            "tasks": {task["name"]: task["on"] for task in job["tasks"]},
        },
    }


def _task(stated: dict[str, Any], *, gate: bool) -> dict[str, Any]:
    task = {"name": stated["name"], "time": _with("s", stated["time"]), "gate": gate}
    if stated.get("takes"):
        task["takes"] = stated["takes"]
    if "frees" in stated:
        task["frees"] = stated["frees"] or "none"
    return task | ({"iterations": stated["rounds"]} if "rounds" in stated else {})


def _with(unit: str, value: Any) -> Any:
    if isinstance(value, list):
        return [f"{one} {unit}" for one in value]
    return f"{value} {unit}"


def racks(options: Namespace, case: str, policy: str) -> list[Trial]:
    """Run DGTP's job on two racks, a fast and a slow machine in each."""
    stated = [
        {
            "name": f"r{n}",
            "machines": [f"fast{n}", f"slow{n}"],
            "uplink": options.uplink,
        }
        for n in (0, 1)
    ]
    racked = {"cluster.racks": stated}
    tasks = prepare(load(_BASE, racked)).tasks
    changes = racked | {
        "schedule.policy": policy,
        "placement.policy": "explicit",
        "placement.tasks": dict(tasks),
        "expect": None,
        "job.iterations": 4,
        "emulation.time_scale": 4,
    }
    return [attempt(case, prepare(load(_BASE, changes)), options.out / "runs")]


def ring(options: Namespace, name: str) -> list[Trial]:
    """Run the testbed with a parameter server or a ring."""
    changes = ["expect=null", "job.iterations=6", "emulation.time_scale=4"]
    experiment = prepare(load(_BASE, [*_SUMS[name], *changes]))
    link, seconds = _busiest(experiment)
    trial = attempt(f"ring: {name}", experiment, options.out / "runs")
    note = f"{_crossed(experiment):.3f} GB, {link} busy {seconds:.3f} s"
    return [replace(trial, note=note)]


def _crossed(experiment: Any) -> float:
    """Return the gigabytes that cross between machines."""
    remote = [bool(hops) for hops in experiment.problem.hops]
    return float(experiment.realization.volumes[remote].sum() / 1e9)


def _busiest(experiment: Any) -> tuple[str, float]:
    """Return the link whose bytes take longest at its capacity, and how long."""
    seconds: dict[str, float] = {}
    volumes = experiment.realization.volumes.sum(axis=1)
    for hops, bytes_ in zip(experiment.problem.hops, volumes, strict=True):
        for port in hops:
            link = experiment.problem.links[port]
            seconds[link.name] = seconds.get(link.name, 0) + bytes_ / link.capacity
    return max(seconds.items(), key=lambda item: item[1])


def share(options: Namespace, how: str) -> list[Trial]:
    """Run two training jobs at once, and note what each cost the other."""
    job = copy.deepcopy(load(_BASE).to_json()["job"])
    job |= {"workers": 3, "iterations": 8, "epochs": None}
    room = {"cpu": 16, "gpu": 2, "memory": "96 GB"}
    place = {"policy": "ifs"}
    content = {
        "name": "two",
        "cluster": {
            "machines": [
                {"name": f"m{i}", "nic": f"{nic} Gbit/s", **room}
                for i, nic in enumerate((50, 50, 10, 10))
            ]
        },
        "jobs": [{"name": name, "job": job, "placement": place} for name in "ab"],
        "emulation": {"time_scale": 4, "byte_scale": 0.05, "deadline": "60 s"},
        "schedule": {"policy": "oes", "share": how},
    }
    notes: list[str] = []

    def carry(*run: Any) -> ExperimentOutcome:
        outcome = carry_out(*run)
        ran, policy = outcome.run, outcome.result["policy"]
        notes.extend(
            f"{one.job}: {one.seconds:.4f} s, {one.slowdown:.3f} times that alone"
            for one in job_times(ran.schedule, ran.realization, policy)
        )
        return outcome

    experiment = prepare(loads(json.dumps(content)))
    runs = options.out / "runs"
    trial = attempt(f"share: {how}", experiment, runs, carry=carry)
    return [replace(trial, note="; ".join(notes))]


def table(rows: list[Trial], _: Namespace) -> Iterator[str]:
    """Yield simulated and emulated makespan, error, verdict of every case."""
    for row in rows:
        yield (
            f"{row.case:44} {row.expected:10.5f} s {row.emulated:10.5f} s "
            f"{100 * row.makespan_error:+8.4f} % {row.trust} "
            f"scale {row.time_scale:g} {row.note}"
        ).rstrip()


STUDY = Study(row=Trial, work=work, table=table, options=options)
