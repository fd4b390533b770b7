"""The core's scheduler with a Python face, for events that come from outside."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from emu.array_types import Array, Floats, Ints
from emu.errors import SchedulingError
from emu.prediction.core import ffi, lib, pointer, structure
from emu.prediction.scheduling.compiled_problem import (
    placed_layout,
    plain,
)
from emu.prediction.scheduling.policies import rate_policy
from emu.prediction.scheduling.state import (
    ROOM,
    State,
    check_rows,
    expectation,
    gates_of,
    new_rate_changes,
    room_for,
)
from emu.problem import Problem, Profile


@dataclass(slots=True)
class RateSegments:
    """Fluid lines: bytes served at a time, and the rate from then on."""

    edge: Ints
    iteration: Ints
    """The flow, int64, shape (lines,)."""
    served: Floats
    rate: Floats
    """Bytes and bytes per second, float64, shape (lines,)."""
    since: Floats
    """The time, seconds, same shape."""

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self.edge)

    def __getitem__(self, part: slice | list[int]) -> RateSegments:
        """Return a part of them."""
        return RateSegments(
            self.edge[part],
            self.iteration[part],
            self.served[part],
            self.rate[part],
            self.since[part],
        )


@dataclass(slots=True)
class Decisions:
    """Decisions that follow from the events of one instant."""

    time: float
    """Time of the instant, seconds."""
    tasks: list[tuple[int, int]]
    """(task, iteration) that start now."""
    flows: list[tuple[int, int]]
    """(edge, iteration) between machines that became active now."""
    lines: RateSegments
    """Every active flow whose fluid line changed, new ones included."""
    served: int = 0
    """Number of first lines that are of flows whose fluid has ended: the rate is 0 and
    others may have it, though the flow ends only when it has arrived, too."""
    gates: tuple[tuple[int, int, float], ...] = ()
    """(gate, iteration, when it started) of every gate that ended now."""

    @property
    def news(self) -> RateSegments:
        """The lines to send to senders, which note themselves that a fluid ends."""
        return self.lines[self.served :] if self.served else self.lines


class End(NamedTuple):
    """The end of a task, or of the way of a flow, whose last byte has arrived."""

    time: float
    """Seconds."""
    task: int
    edge: int
    """Position of it; the other is -1."""
    iteration: int
    """Iteration of it."""


#: Ends as the core takes them, none.
NO_ENDS = ffi.new("Ends *")


class Settled(NamedTuple):
    """Decisions after some ends, instant by instant, and the count of ends taken in."""

    decisions: list[Decisions]
    taken: int


class Scheduler:
    """One schedule, driven event by event.

    `announce` what tasks send, and `settle` what has ended. Time never runs backwards:
    an end that is known late counts as now.

    Raises ValueError when there is no such policy or it is the portfolio, or it looks
    ahead and there is no profile, or the profile does not fit the job, or the job has
    gates and there are no times.

    Parameters
    ----------
    policy
        Name of the rate policy, see `emu.prediction.scheduling.RATE_POLICIES`.
    profile
        Times and volumes to expect, for a policy that looks ahead.
    holds
        The least that every iteration of every task takes, seconds, shape (tasks,
        iterations); without it nothing is settled ahead of its time.
    times
        Times of gates, seconds, same shape; only their rows are read.
    """

    def __init__(
        self,
        problem: Problem,
        policy: str,
        profile: Profile | None = None,
        holds: Floats | None = None,
        times: Floats | None = None,
    ) -> None:
        rule = rate_policy(policy)
        job = problem.job
        shape = (len(job.edges), job.iterations)
        if profile is None:
            if rule.looks_ahead:
                raise ValueError(f"{policy} looks ahead: it needs a profile")
            # Other rules do not read it; only its shape is checked.
            no_time = np.zeros((len(job.tasks), 1))
            no_bytes = np.zeros((len(job.edges), 1))
            profile = Profile(times=no_time, volumes=no_bytes)
        check_rows(job, profile)

        self._job = job
        self._layout = placed_layout(problem, rule)
        after = expectation(self._layout, plain(profile.times), plain(profile.volumes))
        self.state = State(self._layout, after, logged=True)
        #: When it took everything in, seconds; for reading.
        self.log = self.state.log
        #: Bytes that were announced, shape (edges, iterations); for reading.
        self.volumes = np.full(shape, 0.0)  # its memory is taken now, not as it goes
        #: The least times that were given.
        self.holds = None if holds is None else plain(holds)
        # The arrays are handed over to the core once for all calls. What a call of
        # `pass_instants` finds is in ``room``, ``gates`` and ``passage``.
        self.gates = gates_of(job, times)
        self._board = new_rate_changes(shape[0])
        self.room = room_for(len(job.tasks), len(job.edges))
        self.passage = structure("Passage", next=math.inf)
        self._volumes = pointer(self.volumes)
        self._least = ffi.NULL if self.holds is None else pointer(self.holds)

    def begin(self) -> Decisions:
        """Return the decisions at time 0.

        Raises SchedulingError when the schedule has begun already.
        """
        if self.state.started.any():
            raise SchedulingError("the schedule has begun already")
        # By -1 the core knows that the schedule begins: nothing has ended, tasks may
        # start.
        first, *_ = self._settle(NO_ENDS, -math.inf, taken=-1).decisions
        return first

    def announce(self, task: int, iteration: int, volumes: Mapping[int, float]) -> None:
        """Note what an iteration of a task sends when it ends.

        Raises SchedulingError when there is no such task or iteration, an edge is not
        one of the task's, or a volume is not a number that can be.

        ``volumes``: bytes per out-edge; an edge that is absent has nothing to send.
        """
        name = self._task_name(task)
        # All is looked at before any is noted: a message counts whole or not at all.
        for edge, volume in volumes.items():
            is_known = 0 <= edge < len(self._job.edges)
            if not is_known or self._job.edges[edge].source != task:
                raise SchedulingError(f"{name} sent over edge {edge}, not one of its")
            if not (math.isfinite(volume) and volume >= 0):
                flow = self._flow_name(edge, iteration)
                raise SchedulingError(f"{flow} has {volume} bytes")

        if not 0 <= iteration < self._job.iterations:
            raise SchedulingError(self._why_not(task, -1, iteration))
        for edge, volume in volumes.items():
            self.volumes[edge, iteration] = volume

    @property
    def next_end(self) -> float:
        """When a flow is served or lands, a gate ends or a capacity changes."""
        return float(self.passage.next)

    def settle(
        self,
        ends: Sequence[End] = (),
        until: float | None = None,
        ahead: float = -math.inf,
    ) -> Settled:
        """Return the decisions that follow from ends, and the number of ends taken in.

        Fluids that end meanwhile are taken in at their time: the rate is for others
        from then on, and the flow ends if it has arrived; else when it arrives.

        Raises SchedulingError when there is no such task, edge or iteration, a time is
        not a number, a task that ended was not running in that iteration, or a flow
        that arrived was not on its way.

        Parameters
        ----------
        ends
            In the order of their times, volumes announced.
        until
            Time by which everything is taken in; that of the last end unless given.
        ahead
            Time before which more is taken in, as far as nothing unknown can come
            before it. The caller ensures that no task now running ends before,
            whose end is not among ``ends``.
        """
        for end in ends:
            self._check_end(end)
        if until is None:
            until = ends[-1].time if ends else -math.inf
        return self._settle(_ends_of(ends), until, ahead)

    def _settle(
        self,
        ends: Any,
        deadline: float,
        horizon: float = -math.inf,
        *,
        taken: int = 0,
    ) -> Settled:
        decisions: list[Decisions] = []
        for count in self.pass_instants(ends, deadline, horizon, taken=taken):
            decisions += self.decisions(count)
        return Settled(decisions, self.passage.taken)

    def _check_end(self, end: End) -> None:
        # NaN is neither before nor behind any instant: the core would never take it in.
        if not math.isfinite(end.time):
            raise SchedulingError(f"an event at time {end.time}")
        if end.task < 0 and not 0 <= end.edge < len(self._job.edges):
            problem = f"a flow of edge {end.edge} arrived, which is not there"
            raise SchedulingError(problem)
        if not 0 <= end.iteration < self._job.iterations:
            raise SchedulingError(self._why_not(end.task, end.edge, end.iteration))
        if end.task >= 0:
            self._task_name(end.task)

    def pass_instants(
        self,
        ends: Any,
        deadline: float = -math.inf,
        horizon: float = -math.inf,
        *,
        taken: int = 0,
    ) -> Iterator[int]:
        """Take ends in as `settle`; yield how many instants ``room`` has then.

        ``ends``: the structure of the core, checked; ``deadline`` and ``horizon``: its
        ``until`` and ``ahead``; ``taken``: -1 to begin. Raises SchedulingError when an
        end was not under way.
        """
        passage = self.passage
        passage.taken = taken
        passage.ahead = horizon
        outcome = lib.FULL

        # A call returns where its room for instants is used up; the next one goes on.
        while outcome == lib.FULL:
            self.state.keep_room(ROOM)
            outcome = lib.pass_instants(
                self._layout.c,
                self.state.c,
                self._volumes,
                self._least,
                self.gates.core,
                self._board.core,
                ends,
                deadline,
                self.room.core,
                passage,
            )
            self.check(outcome, ends)
            yield passage.count

    @property
    def parts(self) -> dict[str, Any]:
        """Structures of the core in which the schedule is, by their names in `Turn`."""
        return {
            "layout": self._layout.c,
            "state": self.state.c,
            "gates": self.gates.core,
            "changes": self._board.core,
            "found": self.room.core,
            "passage": self.passage,
        }

    @property
    def calls_python(self) -> bool:
        """True where the core asks a rule of one's own, or needs room for looks."""
        own_rule = self._layout.job.own
        return own_rule is not None or self.state.is_tuned

    def check(
        self,
        outcome: int,
        ends: Any,
    ) -> None:
        """Raise what went wrong in a call of the core that took some ends in.

        ``outcome``: what the call returned. Raises SchedulingError when an end was not
        under way, and what a rule of one's own has raised.
        """
        # A rule of one's own may have failed within: before its decisions count, it is
        # said.
        self._layout.job.check()

        if outcome == lib.IMPOSSIBLE:
            # All ends before it are taken in: the first that is not is the one that
            # cannot be.
            place = self.passage.taken
            why_not = self._why_not(
                ends.task[place], ends.edge[place], ends.iteration[place]
            )
            raise SchedulingError(why_not)

    def decisions(self, count: int) -> list[Decisions]:
        """Return those of so many instants in ``room``, each with its part of it."""
        room = self.room
        gates = self.gates
        # The lists of all instants stand one behind the other, each from where the one
        # before it ends. Converting whole columns at once is what makes this cheap.
        task_starts = room.tasks[: count + 1].tolist()
        flow_starts = room.flows[: count + 1].tolist()
        line_starts = room.lines[: count + 1].tolist()
        gate_starts = room.gates[: count + 1].tolist()

        tasks = _rows(task_starts[-1], room.task, room.task_iteration)
        flows = _rows(flow_starts[-1], room.flow, room.flow_iteration)
        gate_ends = _rows(gate_starts[-1], gates.task, gates.iteration, gates.start)
        end = line_starts[-1]
        lines = RateSegments(
            # Copies: the next call writes into the same room.
            edge=room.edge[:end].copy(),
            iteration=room.iteration[:end].copy(),
            served=room.amount[:end].copy(),
            rate=room.rate[:end].copy(),
            since=room.since[:end].copy(),
        )

        return [
            Decisions(
                time=time,
                tasks=tasks[slice(*tasks_of)],
                flows=flows[slice(*flows_of)],
                lines=lines[slice(*lines_of)],
                served=served,
                gates=tuple(gate_ends[slice(*gates_of)]),
            )
            for time, served, tasks_of, flows_of, lines_of, gates_of in zip(
                room.time[:count].tolist(),
                room.served[:count].tolist(),
                pairwise(task_starts),
                pairwise(flow_starts),
                pairwise(line_starts),
                pairwise(gate_starts),
                strict=True,
            )
        ]

    @property
    def assigned_rate(self) -> float:
        """Sum of the rates of flows that are not served yet, bytes per second."""
        newest = self._board.iteration
        is_active = (newest == self.state.delivered) & (newest >= self.state.served)
        return float(self._board.rate[is_active].sum())

    @property
    def newest_flows(self) -> Ints:
        """Iteration of the newest flow of every edge that has begun, -1 for none."""
        newest: Ints = self._board.iteration
        return newest

    def services_of(
        self,
        edges: Ints,
        time: float,
    ) -> Floats:
        """Return the bytes that the fluids of the active flows of edges have served.

        The rates of the last settling go on until ``time``, which may be before the
        newest instant; the volume is the most. NaN where no flow of an edge is active.
        """
        served = np.empty(len(edges))
        lib.services_of(
            self._layout.c,
            self.state.c,
            self._board.core,
            self._volumes,
            pointer(edges),
            len(edges),
            time,
            pointer(served),
        )
        return served

    @property
    def quotas(self) -> Ints | None:
        """The quotas that tuners have set, see `emu.problem.Schedule`."""
        return self.state.quotas

    @property
    def finished(self) -> bool:
        """True where every iteration of every task ended."""
        return bool(lib.all_ended(self._layout.c, self.state.c))

    @property
    def broken(self) -> str:
        """Sentence that is false of its state, and its item; empty where all are true.

        For tests (invariants.c): it takes longer than an event.
        """
        item = ffi.new("int64_t *")
        sentence = lib.broken_invariant(
            self._layout.c, self.state.c, self.passage.now, True, item
        )
        return f"{ffi.string(sentence).decode()}: {item[0]}" if sentence else ""

    def _why_not(
        self,
        task: int,
        edge: int,
        iteration: int,
    ) -> str:
        """Return why this cannot have ended."""
        state = self.state
        if task >= 0:
            return (
                f"{self._task_name(task)} ended iteration {iteration}, but it has "
                f"started {state.started[task]} and ended {state.ended[task]} "
                "iterations"
            )
        return (
            f"{self._flow_name(edge, iteration)} arrived, but it was not on its way: "
            f"{state.ready[edge]} were produced, {state.delivered[edge]} delivered"
        )

    def _task_name(self, task: int) -> str:
        if not 0 <= task < len(self._job.tasks):
            raise SchedulingError(f"task number {task} ended, which is not there")
        return self._job.tasks[task].name

    def _flow_name(self, edge: int, iteration: int) -> str:
        return f"flow {self._job.edge_names[edge]} of {iteration}"


def _ends_of(ends: Sequence[End]) -> Any:
    """Return ends as the core takes them."""
    if not ends:
        return NO_ENDS
    time, task, edge, iteration = zip(*ends, strict=True)
    return structure(
        "Ends",
        count=len(ends),
        time=np.array(time, np.float64),
        task=np.array(task, np.int64),
        edge=np.array(edge, np.int64),
        iteration=np.array(iteration, np.int64),
    )


def _rows(count: int, *columns: Array) -> list[tuple[Any, ...]]:
    lists = [column[:count].tolist() for column in columns]
    return list(zip(*lists, strict=True))
