"""Benchmark workloads (``workload_b.json``) as custom-job scenarios.

Such a file states machines as [bandwidth in, out], tasks, edges as [source,
destination, lag], volumes per edge and iteration, one time per task and a placement,
all as bare numbers of bytes, bytes per second and seconds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from emu.errors import ScenarioError
from emu.scenario.document import Document
from emu.systems.custom.section import FlowSection
from emu.units import DURATION, RATE

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEYS = {
    "machines": list,
    "tasks": list,
    "edges": list,
    "volumes": list,
    "exec_times": dict,
    "placement": dict,
    "n_iterations": int,
}


def is_workload(data: dict[str, Any]) -> bool:
    """Return True where ``data`` is a workload file rather than a scenario."""
    return {"machines", "edges", "volumes"} <= data.keys()


def workload_document(document: Document) -> Document:
    """Return the scenario that a workload file states.

    ``expect.makespan`` is not among its keys: which one holds depends on the policy,
    see `expect_listed_makespan`.

    Raises
    ------
    ScenarioError
        When a key is missing or of the wrong kind, or a value is impossible.
    """
    data = document.data
    for key, kind in _KEYS.items():
        if not isinstance(data.get(key), kind) or isinstance(data[key], bool):
            raise ScenarioError(
                f"found {type(data.get(key)).__name__}, a workload has a "
                f"{kind.__name__} here",
                file=document.file,
                key=key,
            )
    try:
        scenario = {
            "cluster": {"machines": [*map(_machine, data["machines"])]},
            "job": {
                "system": "custom",
                "iterations": data["n_iterations"],
                "tasks": [_task(name, data["exec_times"]) for name in data["tasks"]],
                "flows": _flows(data["edges"], data["volumes"]),
                "credit_window": "unlimited",
            },
            "placement": {
                "policy": "explicit",
                "tasks": {name: f"m{m}" for name, m in data["placement"].items()},
            },
        }
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise ScenarioError(
            f"is not a workload: {type(error).__name__} {error}", file=document.file
        ) from error
    return Document(document.file, scenario)


def expect_listed_makespan(data: dict[str, Any], workload: dict[str, Any]) -> None:
    """Write the makespan that ``workload`` lists for the policy of ``data`` there.

    Nothing is written where the overrides changed the number of iterations or say
    themselves what to expect, or where the policy is not listed.
    """
    schedule = data.get("schedule")
    policy = schedule.get("policy") if isinstance(schedule, dict) else "oes"
    listed = workload.get("expected_makespan_s")
    same = data["job"]["iterations"] == workload["n_iterations"]
    if isinstance(listed, dict) and policy in listed and same and "expect" not in data:
        data["expect"] = {"makespan": f"{listed[policy]!r} s"}


def _machine(bandwidths: Sequence[float]) -> dict[str, Any]:
    inward, outward = map(float, bandwidths)
    return {"nic": {"in": RATE.exact(inward), "out": RATE.exact(outward)}}


def _task(name: str, times: dict[str, float]) -> dict[str, Any]:
    kinds = {"g": "graph_store", "s": "sampler", "w": "worker", "p": "parameter_server"}
    time = DURATION.exact(float(times[name]))
    return {"name": name, "kind": kinds.get(name[:1], "task"), "time": time}


def _flows(
    edges: Sequence[Sequence[Any]], volumes: Sequence[Sequence[float]]
) -> list[FlowSection]:
    """Build the flows without validating each of 28,000 volumes by itself.

    Workload B loads in 0.03 s so, instead of 0.2 s through text with units.
    """
    flows = []
    for (source, destination, lag), row in zip(edges, volumes, strict=True):
        values = tuple(map(float, row))
        if not all(math.isfinite(value) and value >= 0 for value in values):
            raise ValueError(f"a volume of {source}->{destination} is impossible")
        if not (isinstance(source, str) and isinstance(destination, str)):
            raise TypeError(f"an edge ends at {source!r}, {destination!r}")
        if not isinstance(lag, int) or lag < 0:
            raise ValueError(f"{source}->{destination} has lag {lag!r}")
        named: dict[str, Any] = {
            "from": source,
            "to": destination,
            "lag": lag,
            "volume": values,
        }
        flows.append(FlowSection.model_construct(**named))
    return flows
