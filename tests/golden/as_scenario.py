"""Golden cases as content of scenario files."""

from __future__ import annotations

from typing import Any

from tests.golden.cases import Case, problem_of, with_gates
from tests.scenario.test_jobs import document


def as_scenario(file: str, case: Case) -> dict[str, Any]:
    """Return a case of a file as a scenario: several jobs, or one custom job."""
    return document(case) if file == "jobs" else _one_job(case)


def _one_job(case: Case) -> dict[str, Any]:
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
                    "reads": "latest" if flow.get("latest") else "each",
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
