"""Problem and Schedule as JSON maps and back, for files that outlive the process."""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.errors import DataError
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Link,
    Machine,
    Placement,
    Problem,
    Route,
    Schedule,
    Task,
)

VERSION = 1


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """Return everything of a problem that a Schedule needs to be understood."""
    job = problem.job
    return {
        "version": VERSION,
        **_cluster_to_json(problem.cluster),
        "iterations": job.iterations,
        "tasks": [
            {
                "name": task.name,
                "kind": task.kind,
                "process": task.process_name,
                "demands": dict(task.demands),
                "pinned": task.pinned,
                "iterations": task.iterations,
                "machine": machine,
            }
            for task, machine in zip(
                job.tasks, problem.placement.machine_of, strict=True
            )
        ],
        "edges": [
            {
                "from": edge.source,
                "to": edge.destination,
                "lag": edge.lag,
                "credit": edge.credit,
            }
            for edge in job.edges
        ],
    }


def _cluster_to_json(cluster: Cluster) -> dict[str, Any]:
    return {
        "machines": [
            {
                "name": machine.name,
                "bandwidth_in": machine.bandwidth_in,
                "bandwidth_out": machine.bandwidth_out,
                "resources": dict(machine.resources),
                "speed": machine.speed,
            }
            for machine in cluster.machines
        ],
        "links": [
            {"name": link.name, "capacity": link.capacity}
            for link in cluster.shared_links
        ],
        "routes": [
            {"from": route.sources, "to": route.destinations, "through": route.through}
            for route in cluster.routes
        ],
    }


def problem_from_json(data: Any, path: str) -> Problem:
    """Return the problem of `problem_to_json`.

    Raises
    ------
    DataError
        When it is of another version or not a problem.
    """
    version = data.get("version") if isinstance(data, dict) else None
    if version != VERSION:
        raise DataError(f"version {version!r}, this emu reads {VERSION}", path=path)
    try:
        cluster = _cluster(data)
        job = Job(
            tasks=tuple(
                Task(
                    name=task["name"],
                    kind=task["kind"],
                    process=task["process"],
                    demands=task["demands"],
                    pinned=task["pinned"],
                    iterations=task.get("iterations"),
                )
                for task in data["tasks"]
            ),
            edges=tuple(
                Edge(edge["from"], edge["to"], edge["lag"], edge["credit"])
                for edge in data["edges"]
            ),
            iterations=data["iterations"],
        )
        placement = Placement(tuple(task["machine"] for task in data["tasks"]))
        return Problem(cluster, job, placement)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"not a problem: {error}", path=path) from error


def _cluster(data: dict[str, Any]) -> Cluster:
    """Return the cluster; files of before there were links have none."""
    return Cluster(
        tuple(Machine(**machine) for machine in data["machines"]),
        tuple(Link(**link) for link in data.get("links", ())),
        tuple(
            Route(tuple(route["from"]), tuple(route["to"]), tuple(route["through"]))
            for route in data.get("routes", ())
        ),
    )


def schedule_from_json(problem: Problem, data: dict[str, Any], path: str) -> Schedule:
    """Return the schedule that `Schedule.to_json` wrote for ``problem``.

    Handoffs within a machine are not in the file; they follow from the task ends.

    Raises
    ------
    DataError
        When a task, flow or iteration is missing, unknown, or not a number.
    """
    job = problem.job
    task_shape, edge_shape = (
        (len(job.tasks), job.iterations),
        (
            len(job.edges),
            job.iterations,
        ),
    )
    start, end = np.full(task_shape, np.nan), np.full(task_shape, np.nan)
    ready, began, over, size = (np.full(edge_shape, np.nan) for _ in range(4))
    try:
        for row in data["tasks"]:
            at = job.index(row["task"]), row["iteration"]
            start[at], end[at] = row["start"], row["end"]
        for row in data["flows"]:
            at = job.edge_positions[edge_name(row)], row["iteration"]
            ready[at], began[at], over[at] = row["ready"], row["start"], row["end"]
            size[at] = row["bytes"]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(
            f"not a schedule of this problem: {error}", path=path
        ) from error
    ran = np.arange(job.iterations) < np.array(job.rounds, dtype=np.int64)[:, None]
    if np.isnan(end[ran]).any():
        task, iteration = np.argwhere(np.isnan(end) & ran)[0]
        raise DataError(
            f"task {job.tasks[task].name} iteration {iteration} is missing", path=path
        )
    _hand_over(problem, end, ready, began, over, size)
    return Schedule(problem, start, end, ready, began, over, size)


def edge_name(row: dict[str, Any]) -> str:
    """Return the name of the edge of a row of ``flows``.

    Files of before edges had names state the two tasks alone, of one edge.
    """
    return str(row["edge"] if "edge" in row else f"{row['from']}->{row['to']}")


def _hand_over(problem: Problem, task_end: Any, *flow_times: Any) -> None:
    """Fill in, in place, the handoffs within a machine."""
    ready, began, over, size = flow_times
    job = problem.job
    for e, edge in enumerate(job.edges):
        sent = job.flow_counts[e]
        if not problem.hops[e]:
            for times in (ready, began, over):
                times[e, :sent] = task_end[edge.source, :sent]
            size[e, :sent] = 0.0
