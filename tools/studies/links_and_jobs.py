"""Golden cases of links, slots, rings and several jobs over sockets.

    tools/study links_and_jobs OUT [--only hops/two_racks] [--scale S]

Every case that has an exact result, under every policy that has one: hops, executors,
jobs and ring of tests/golden.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.scheduling import RATE_POLICIES
from tests.golden.cases import Case, cases, exactly, problem_of, with_gates
from tests.scenario.test_jobs import document
from tools.runner import Study
from tools.trials.trial import Trial, attempt

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from tools.runner import Work

#: Time scale of golden cases, and the wall seconds that each lasts at least.
_TIME_SCALE, _WALL = 0.25, 1.5


def options(parser: ArgumentParser) -> None:
    """Add how the cases are scaled."""
    parser.add_argument("--scale", type=float, help="time scale")


def work(options: Namespace) -> Iterator[Work[Trial]]:
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
                name = f"{file}/{case}/{policy}"
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


def table(rows: list[Trial], _: Namespace) -> Iterator[str]:
    """Yield simulated and emulated makespan, error, verdict of every case."""
    for row in rows:
        yield (
            f"{row.case:44} {row.expected:10.5f} s {row.emulated:10.5f} s "
            f"{100 * row.makespan_error:+8.4f} % {row.trust} scale {row.time_scale:g}"
        )


STUDY = Study(row=Trial, work=work, table=table, options=options)
