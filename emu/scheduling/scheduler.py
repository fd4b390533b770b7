"""The compiled scheduler with a Python face, for events that come from outside."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import SchedulingError
from emu.problem import Profile
from emu.scheduling import progress
from emu.scheduling.compiled import compiled
from emu.scheduling.fluid import next_end
from emu.scheduling.layout import job_arrays, lay_out, plain
from emu.scheduling.lines import Board, changed_lines, new_board
from emu.scheduling.policies import rate_policy
from emu.scheduling.rates import check_rows, expectation, set_rates
from emu.scheduling.state import BEGUN, OPENED, State, new_state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from emu.problem import Problem
    from emu.scheduling.layout import Floats, Ints, Layout


@dataclass(frozen=True)
class Lines:
    """Fluid lines: bytes served at a time, and the rate from then on.

    Parameters
    ----------
    edge, iteration
        The flow, int64, shape (lines,).
    served, rate
        Bytes and bytes per second, float64, shape (lines,).
    since
        The time, seconds, same shape.
    """

    edge: Ints
    iteration: Ints
    served: Floats
    rate: Floats
    since: Floats

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.edge)


def newest(lines: Sequence[Lines]) -> Lines:
    """Return the last line of every edge, of lines in the order of their time."""
    if len(lines) == 1:
        return lines[0]
    edge = np.concatenate([some.edge for some in lines])
    _, first = np.unique(edge[::-1], return_index=True)
    last = len(edge) - 1 - first

    def kept(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(some, name) for some in lines])[last]

    return Lines(
        edge[last], kept("iteration"), kept("served"), kept("rate"), kept("since")
    )


@dataclass(frozen=True)
class Decisions:
    """What follows from the events of one instant.

    Parameters
    ----------
    tasks
        (task, iteration) that start now.
    flows
        (edge, iteration) between machines that became active now.
    lines
        Every active flow whose fluid line changed, new ones included; flows that are
        slowed down come before those that are sped up, so that a port is never
        over-used in between.
    """

    tasks: list[tuple[int, int]]
    flows: list[tuple[int, int]]
    lines: Lines


@compiled
def _take_in(layout: Layout, state: State, task: int, edge: int, now: float) -> None:
    """Take in the end of ``task`` or of the flow of ``edge``; neither (-1): begin.

    One function, as every one that Python calls costs half a second to compile.
    """
    if task >= 0:
        progress.end_task(layout, state, task, now)
    elif edge >= 0:
        progress.end_flow(layout, state, edge, now)
    else:
        progress.begin(layout, state)


@compiled
def _settle(
    layout: Layout, state: State, volumes: Floats, board: Board, now: float
) -> tuple[int, float]:
    """Return how many lines changed, and when the next flow will have been served."""
    state.length[BEGUN] = 0
    state.length[OPENED] = 0
    progress.settle(layout, state, volumes, now)
    set_rates(layout, state, now)
    return changed_lines(layout, state, board, now), next_end(state)


@compiled
def _drain(layout: Layout, state: State, now: float) -> int:
    return progress.drain_flow(layout, state, now)


class Scheduler:
    """One schedule, driven event by event.

    Tell it every end with `task_ended` and `flow_ended`, then call `settle` once per
    instant. Time never runs backwards: an event reported late counts as now.

    Parameters
    ----------
    problem
        What is to be scheduled.
    policy
        Name of the rate policy, see `emu.scheduling.POLICIES`.
    profile
        Times and volumes to expect, for a policy that looks ahead.

    Raises
    ------
    ValueError
        When there is no such policy or it is the portfolio, or it looks ahead and
        there is no profile, or the profile does not fit the job.
    """

    def __init__(
        self, problem: Problem, policy: str, profile: Profile | None = None
    ) -> None:
        rule, job = rate_policy(policy), problem.job
        shape = (len(job.edges), job.iterations)
        if profile is None:
            if rule.looks_ahead:
                raise ValueError(f"{policy} looks ahead: it needs a profile")
            profile = Profile(np.zeros((len(job.tasks), 1)), np.zeros((shape[0], 1)))
        check_rows(job, profile)
        arrays = job_arrays(job, problem.cluster, rule.code, by_flow=rule.by_flow)
        self._job = job
        self._layout = lay_out(
            arrays, np.array(problem.placement.machine_of, dtype=np.int64)
        )
        after = expectation(self._layout, plain(profile.times), plain(profile.volumes))
        self._state = new_state(self._layout, after, 0)
        self._volumes = np.zeros(shape)
        self._board = new_board(shape[0])
        self._drained: dict[int, int] = {}
        self._now, self._next_end = 0.0, math.inf

    def begin(self) -> Decisions:
        """Return what starts at time 0.

        Raises
        ------
        SchedulingError
            When the schedule has begun already.
        """
        if self._state.started.any():
            raise SchedulingError("the schedule has begun already")
        _take_in(self._layout, self._state, -1, -1, 0.0)
        return self.settle(0.0)

    def task_ended(
        self, task: int, iteration: int, volumes: Mapping[int, float], time: float
    ) -> None:
        """Take in that ``iteration`` of ``task`` ended at ``time``.

        Parameters
        ----------
        volumes
            Bytes per out-edge; an edge that is absent has nothing to send.

        Raises
        ------
        SchedulingError
            When that iteration is not running, an edge is not one of the task's, or a
            volume or the time is not a number that can be.
        """
        state = self._state
        name = self._task_name(task)
        if not state.ended[task] == iteration < state.started[task]:
            raise SchedulingError(
                f"{name} ended iteration {iteration}, but it has started "
                f"{state.started[task]} and ended {state.ended[task]} iterations"
            )
        for edge, volume in volumes.items():
            if not 0 <= edge < len(self._job.edges) or (
                self._job.edges[edge].source != task
            ):
                raise SchedulingError(f"{name} sent over edge {edge}, not one of its")
            if not (math.isfinite(volume) and volume >= 0):
                raise SchedulingError(
                    f"{self._flow_name(edge, iteration)} has {volume} bytes"
                )
        now = self._clamped(time)
        for edge, volume in volumes.items():
            self._volumes[edge, iteration] = volume
        _take_in(self._layout, state, task, -1, now)

    def flow_ended(self, edge: int, iteration: int, time: float) -> None:
        """Take in that the flow ``iteration`` of ``edge`` ended at ``time``.

        Raises
        ------
        SchedulingError
            When that flow is not active, or the time is not a number.
        """
        if not 0 <= edge < len(self._job.edges):
            raise SchedulingError(f"a flow of edge {edge} ended, which is not there")
        state = self._state
        if not (
            state.delivered[edge] == iteration == self._board.iteration[edge]
            and state.ready[edge] > iteration
        ):
            raise SchedulingError(
                f"{self._flow_name(edge, iteration)} ended, but it was not active: "
                f"{state.ready[edge]} were produced, {state.delivered[edge]} delivered"
            )
        _take_in(self._layout, state, -1, edge, self._clamped(time))
        self._drained.pop(edge, None)

    @property
    def next_fluid_end(self) -> float:
        """When the next flow will have been served, by the last `settle`; or never."""
        return self._next_end

    def drain(self, time: float) -> tuple[int, int]:
        """Take the next flow that has been served by ``time`` out of the network.

        Its rate is for others from now on, which `settle` must tell before the next
        call; `flow_ended` will say when its last byte arrived. Returns (edge,
        iteration).

        Raises
        ------
        SchedulingError
            When no flow has been served, or the time is not a number.
        """
        edge = int(_drain(self._layout, self._state, self._clamped(time)))
        if edge < 0:
            raise SchedulingError(f"no flow has been served by {time}")
        iteration = int(self._state.delivered[edge])
        self._drained[edge] = iteration
        return edge, iteration

    def settle(self, time: float) -> Decisions:
        """Return what follows from the events told since the last call.

        Raises
        ------
        SchedulingError
            When the time is not a number.
        """
        now = self._clamped(time)
        layout, state = self._layout, self._state
        lines, self._next_end = _settle(
            layout, state, plain(self._volumes), self._board, now
        )
        order = np.argsort(~self._board.slower[:lines], kind="stable")
        edge = self._board.edge[order]
        begun = state.begun[: state.length[BEGUN]].tolist()
        opened = state.opened[: state.length[OPENED]].tolist()
        return Decisions(
            tasks=[(task, int(state.started[task]) - 1) for task in begun],
            flows=[(e, int(state.delivered[e])) for e in opened],
            lines=Lines(
                edge,
                state.delivered[edge],
                self._board.served[order],
                self._board.rate[edge],
                np.full(lines, now),
            ),
        )

    def served(self, edge: int, time: float) -> float:
        """Return the bytes that the fluid of the active flow of ``edge`` has served.

        The rates of the last settling go on until ``time``; the volume is the most.

        Raises
        ------
        SchedulingError
            When no flow of ``edge`` is active.
        """
        state = self._state
        iteration = int(state.delivered[edge])
        if self._board.iteration[edge] != iteration:
            raise SchedulingError(f"{self._flow_name(edge, iteration)} is not active")
        if self._drained.get(edge) == iteration:
            return float(self._volumes[edge, iteration])
        group = self._layout.group[edge]
        ahead = state.rate[group] * max(0.0, time - state.since[group])
        served = state.service[group] + ahead - state.base[edge]
        return min(float(served), float(self._volumes[edge, iteration]))

    @property
    def finished(self) -> bool:
        """Whether every iteration of every task ended."""
        return bool((self._state.ended == self._job.iterations).all())

    def _clamped(self, time: float) -> float:
        if not math.isfinite(time):
            raise SchedulingError(f"an event at time {time}")
        self._now = max(self._now, time)
        return self._now

    def _task_name(self, task: int) -> str:
        if not 0 <= task < len(self._job.tasks):
            raise SchedulingError(f"task number {task} ended, which is not there")
        return self._job.tasks[task].name

    def _flow_name(self, edge: int, iteration: int) -> str:
        return f"flow {self._job.edge_name(self._job.edges[edge])} of {iteration}"
