"""The golden vectors as problems: see README.md beside this file for their rules."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from emu.problem import (
    Cluster,
    Edge,
    Job,
    Link,
    Machine,
    Placement,
    Problem,
    Realization,
    Route,
    Task,
)


@dataclass(frozen=True)
class Case:
    """One golden job and its results by policy."""

    name: str
    job: dict[str, Any]
    results: dict[str, dict[str, Any]]

    @override
    def __str__(self) -> str:
        """Return the name."""
        return self.name


@cache
def cases(file: str) -> tuple[Case, ...]:
    """Return the cases of ``golden_<file>.json``."""
    path = Path(__file__).with_name(f"golden_{file}.json")
    found = json.loads(path.read_text(encoding="utf-8"))["cases"]
    return tuple(Case(one["name"], one["job"], one["results"]) for one in found)


def exactly(values: list[Any]) -> list[float]:
    """Return numbers, and texts such as ``427/30``, as floats."""
    return [float(Fraction(value)) for value in values]


def problem_of(case: Case) -> tuple[Problem, Realization]:
    """Return the problem and the times and volumes of a case."""
    stated, iterations = case.job, case.job["iterations"]
    names = [*stated["machines"]]
    positions = {task["name"]: j for j, task in enumerate(stated["tasks"])}
    cluster = Cluster(
        tuple(
            Machine(
                name,
                float(m.get("in", 0)),
                float(m.get("out", 0)),
                slots=m.get("slots", {}),
            )
            for name, m in stated["machines"].items()
        ),
        tuple(Link(name, float(c)) for name, c in stated.get("links", {}).items()),
        tuple(
            Route((names.index(source),), (names.index(to),), tuple(through))
            for (source, to), through in (
                (pair.split(">"), through)
                for pair, through in stated.get("routes", {}).items()
            )
        ),
    )
    edges = tuple(
        Edge(
            positions[flow["from"]],
            positions[flow["to"]],
            flow.get("lag", 0),
            credit=flow.get("credit", False),
            latest=flow.get("latest", False),
        )
        for flow in stated["flows"]
    )
    job = Job(tuple(map(_task, stated["tasks"])), edges, iterations)
    placement = Placement(tuple(names.index(task["on"]) for task in stated["tasks"]))
    times = _rows([task["time"] for task in stated["tasks"]], iterations)
    volumes = _rows([flow["volume"] for flow in stated["flows"]], iterations)
    return Problem(cluster, job, placement), Realization(times, volumes)


def with_gates(problem: Problem, realization: Realization) -> Problem:
    """Return the problem with gates for the tasks that do nothing but order others."""
    job = problem.job
    busy = {*np.flatnonzero(realization.times.any(axis=1)).tolist()}
    for edge, volumes in zip(job.edges, realization.volumes, strict=True):
        busy |= {edge.source, edge.destination} if volumes.any() else set()
    tasks = tuple(replace(t, gate=j not in busy) for j, t in enumerate(job.tasks))
    return replace(problem, job=replace(job, tasks=tasks))


def _task(stated: dict[str, Any]) -> Task:
    return Task(
        stated["name"],
        stated.get("kind", "task"),
        iterations=stated.get("rounds"),
        takes=stated.get("takes", ""),
        frees=stated.get("frees"),
        gate=stated.get("gate", False),
    )


def _rows(stated: list[Any], iterations: int) -> Any:
    rows = np.zeros((len(stated), iterations))
    for row, values in zip(rows, stated, strict=True):
        listed = values if isinstance(values, list) else [values] * iterations
        row[: len(listed)] = exactly(listed)
    return rows
