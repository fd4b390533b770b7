"""Schedules and training figures as pandas frames, for notebooks.

Imported only where a frame is asked for: pandas takes half a second to import.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from emu.errors import DataError
from emu.host.input_file import MOST_TEXT, open_input
from emu.prediction.analysis.link_load import mean_rates, sum_rates
from emu.problem import Schedule


def task_frame(emulated: Schedule | None, simulated: Schedule | None) -> pd.DataFrame:
    """Return columns run, task, kind, machine, iteration, start, end (seconds).

    ``run`` is ``emulated`` or ``simulated``.
    """
    columns = ["run", "task", "kind", "machine", "iteration", "start", "end"]
    return _stack(emulated, simulated, lambda schedule: schedule.tasks, columns)


def flow_frame(emulated: Schedule | None, simulated: Schedule | None) -> pd.DataFrame:
    """Return the flows between machines.

    Columns run, edge (its name), source, destination, from_kind, to_kind, from_machine,
    to_machine, iteration (of the source), bytes, ready, start, end (seconds).
    """
    ends = ["source", "destination", "from_kind", "to_kind"]
    machines = ["from_machine", "to_machine", "iteration", "bytes"]
    columns = ["run", "edge", *ends, *machines, "ready", "start", "end"]
    return _stack(emulated, simulated, _flows, columns)


def port_frame(schedule: Schedule) -> pd.DataFrame:
    """Return the rate of every port, one row per change.

    Columns port, machine, direction (both empty where it is no NIC), capacity, time
    (seconds), rate (bytes per second) and source: ``assigned`` by the scheduler or,
    where that is not recorded, ``mean`` of what was moving.
    """
    problem = schedule.problem
    assigned = sum_rates(schedule)
    machines = [machine.name for machine in problem.cluster.machines]
    frames = [
        pd.DataFrame(
            {
                "port": link.name,
                "machine": machines[link.machine] if link.direction else "",
                "direction": link.direction,
                "capacity": problem.links.steps.at(port, times),
                "time": times,
                "rate": rates,
                "source": "mean" if assigned is None else "assigned",
            }
        )
        for port, (link, (times, rates)) in enumerate(
            zip(problem.links, assigned or mean_rates(schedule), strict=True)
        )
    ]
    columns = ("port", "machine", "direction", "capacity", "time", "rate", "source")
    none = [pd.DataFrame(columns=columns)]  # where no machine has a NIC
    return pd.concat(frames or none, ignore_index=True)


def training_frame(path: Path) -> pd.DataFrame:
    """Return training.csv: time, task, iteration, figure, value; no rows if missing."""
    columns = ["time", "task", "iteration", "figure", "value"]
    if not path.exists():
        return pd.DataFrame(columns=columns)
    try:
        with open_input(path, MOST_TEXT) as file:
            frame = pd.read_csv(file, on_bad_lines="skip")
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}", path=str(path)) from error
    if list(frame.columns) != columns:
        raise DataError(f"has the columns {', '.join(frame.columns)}", path=str(path))
    return frame.dropna().reset_index(drop=True)


def _stack(
    emulated: Schedule | None,
    simulated: Schedule | None,
    rows: Callable[[Schedule], pd.DataFrame],
    columns: list[str],
) -> pd.DataFrame:
    schedules = [("emulated", emulated), ("simulated", simulated)]
    frames = []
    for run, schedule in schedules:
        if schedule is not None:
            frame = rows(schedule)
            frame.insert(0, "run", run)
            frames.append(frame)
    if not frames:
        return pd.DataFrame(columns=columns)
    return pd.concat(frames, ignore_index=True)[columns]


def _flows(schedule: Schedule) -> pd.DataFrame:
    problem, job = schedule.problem, schedule.problem.job
    flows = schedule.flows()
    at = tuple(flows.T)
    machine_of = np.array(problem.placement.machine_of)
    machines = np.array([machine.name for machine in problem.cluster.machines])
    names = np.array([task.name for task in job.tasks])
    kinds = np.array([task.kind for task in job.tasks])
    source = np.array([edge.source for edge in job.edges], dtype=np.int64)[flows[:, 0]]
    to = np.array([edge.destination for edge in job.edges], dtype=np.int64)[flows[:, 0]]
    return pd.DataFrame(
        {
            "edge": np.array(job.edge_names)[flows[:, 0]],
            "source": names[source],
            "destination": names[to],
            "from_kind": kinds[source],
            "to_kind": kinds[to],
            "from_machine": machines[machine_of[source]],
            "to_machine": machines[machine_of[to]],
            "iteration": flows[:, 1],
            "bytes": schedule.flow_bytes[at],
            "ready": schedule.flow_ready[at],
            "start": schedule.flow_start[at],
            "end": schedule.flow_end[at],
        }
    )
