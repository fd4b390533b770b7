"""What a scenario asks of its host, read off its simulation."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from emu.calibration.perturbed_replay import LateReplay
from emu.simulation import simulate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import Problem, Profile, Realization, Schedule
    from emu.shaping import FlowEnds


#: Moments that stand for the time in which a flow is carried.
_PARTS = 8


@dataclass(frozen=True)
class Load:
    """Emulated seconds and bytes.

    Parameters
    ----------
    makespan
        Seconds.
    processes
        Node processes.
    largest
        Bytes that may wait at receivers at a time, at most: those of two iterations.
    peak_rate
        Bytes per second of all flows together, at most.
    sending
        Seconds for which a process has something to send, summed over processes.
    demand
        What asks for a core and when.
    replay
        What comes of ends that are late.
    flow_ends
        What ends a flow: whether senders lead.
    """

    makespan: float
    processes: int
    largest: float
    peak_rate: float
    sending: float
    demand: Demand
    replay: LateReplay
    flow_ends: FlowEnds = "arrival"


@dataclass(frozen=True, eq=False)
class Demand:
    """Moments at which a host has something to do, in the order of time.

    Parameters
    ----------
    time
        Emulated seconds, float64, shape (moments,).
    flows, tasks, payload, paced, work
        What begins then, same shape: halves of flows (a start and an end each), halves
        of tasks, emulated bytes, emulated seconds in which these are sent, CPU
        seconds.
    room
        Emulated seconds within which ``work`` must be done, same shape.
    """

    time: NDArray[np.float64]
    flows: NDArray[np.float64]
    tasks: NDArray[np.float64]
    payload: NDArray[np.float64]
    paced: NDArray[np.float64]
    work: NDArray[np.float64]
    room: NDArray[np.float64]


def load_of(
    problem: Problem,
    realization: Realization,
    policy: str = "oes",
    *,
    profile: Profile | None = None,
    work: NDArray[np.float64] | None = None,
    flow_ends: FlowEnds = "arrival",
) -> Load:
    """Return the load of a problem's simulation.

    Parameters
    ----------
    problem, realization, policy, profile
        As for `emu.simulation.simulate`.
    work
        CPU seconds that tasks really take, shape (tasks, iterations); None where they
        only hold their times.
    flow_ends
        What ends a flow.
    """
    schedule = simulate(
        problem, realization, policy, profile=profile, record_rates=True
    )
    sent = np.nan_to_num(schedule.flow_bytes)
    idle = np.zeros_like(schedule.task_end)
    return Load(
        makespan=schedule.makespan,
        processes=len(problem.job.processes),
        largest=float(2 * sent.sum(axis=0).max(initial=0.0)),
        peak_rate=peak_rate(schedule),
        sending=_sending(schedule),
        demand=_demand(schedule, idle if work is None else work),
        replay=LateReplay(problem, realization, policy, profile, schedule),
        flow_ends=flow_ends,
    )


def _demand(schedule: Schedule, work: NDArray[np.float64]) -> Demand:
    """Return the moments; a handoff within a machine is one that begins and ends."""
    at = tuple(schedule.flows().T)
    start, end = schedule.flow_start[at], schedule.flow_end[at]
    sent = np.nan_to_num(schedule.flow_bytes)
    between = np.zeros(sent.shape, dtype=bool)
    between[at] = True
    handed = np.argwhere((sent > 0) & ~between)
    sources = np.array([e.source for e in schedule.problem.job.edges], dtype=np.int64)
    handoff = schedule.task_end[sources[handed[:, 0]], handed[:, 1]]
    begun, done = schedule.task_start.ravel(), schedule.task_end.ravel()
    middles = (np.arange(_PARTS) + 0.5) / _PARTS
    length = end - start
    carried = np.repeat(np.stack([sent[at], length]) / _PARTS, _PARTS, axis=1)
    return _in_order(
        (start, {"flows": 0.5}),
        (end, {"flows": 0.5}),
        (
            (start[:, None] + length[:, None] * middles).ravel(),
            {"payload": carried[0], "paced": carried[1]},
        ),
        (handoff, {"flows": 0.5, "payload": sent[tuple(handed.T)]}),
        (begun, {"tasks": 0.5, "work": work.ravel(), "room": done - begun}),
        (done, {"tasks": 0.5}),
    )


def _in_order(
    *moments: tuple[NDArray[np.float64], dict[str, NDArray[np.float64] | float]],
) -> Demand:
    """Return all of them in the order of time: when, and what begins then."""
    time = np.concatenate([when for when, _ in moments])
    order = np.argsort(time, kind="stable")

    def gathered(name: str) -> NDArray[np.float64]:
        parts = [np.broadcast_to(w.get(name, 0.0), t.shape) for t, w in moments]
        return np.concatenate(parts)[order]

    names = [field.name for field in fields(Demand) if field.name != "time"]
    return Demand(time=time[order], **{name: gathered(name) for name in names})


def peak_rate(schedule: Schedule) -> float:
    """Return the greatest sum of assigned rates, bytes per second.

    Raises
    ------
    ValueError
        When the schedule holds no rates.
    """
    rates = schedule.rates
    if rates is None:
        raise ValueError("the schedule holds no rates")
    if not len(rates.time):
        return 0.0
    flow = rates.edge * schedule.flow_end.shape[1] + rates.iteration
    order = np.lexsort((rates.time, flow))
    flow, time, rate = flow[order], rates.time[order], rates.rate[order]
    first = np.append(True, flow[1:] != flow[:-1])
    last = np.append(first[1:], True)
    change = rate - np.where(first, 0.0, np.append(0.0, rate[:-1]))
    ended = schedule.flow_end.ravel()[flow[last]]
    moments = np.append(time, ended)
    changes = np.append(change, -rate[last])
    # What ends at a moment makes room for what begins then.
    order = np.lexsort((changes, moments))
    return float(np.cumsum(changes[order]).max(initial=0.0))


def _sending(schedule: Schedule) -> float:
    """Return the summed time for which each process has a flow under way."""
    job, hops = schedule.problem.job, schedule.problem.hops
    process_of = {t: p for p, tasks in job.processes.items() for t in tasks}
    spans: dict[str, list[NDArray[np.float64]]] = {}
    for position, edge in enumerate(job.edges):
        if hops[position]:
            span = np.stack(
                [schedule.flow_start[position], schedule.flow_end[position]], axis=1
            )
            spans.setdefault(process_of[edge.source], []).append(span)
    return sum(union_length(np.concatenate(found)) for found in spans.values())


def union_length(spans: NDArray[np.float64]) -> float:
    """Return the length of a union of intervals, shape (n, 2); NaN does not count."""
    spans = spans[~np.isnan(spans).any(axis=1)]
    spans = spans[np.argsort(spans[:, 0])]
    if not len(spans):
        return 0.0
    covered = np.maximum.accumulate(spans[:, 1])
    begin = np.maximum(spans[1:, 0], covered[:-1])
    rest = np.maximum(spans[1:, 1] - begin, 0.0)
    return float(spans[0, 1] - spans[0, 0] + rest.sum())
