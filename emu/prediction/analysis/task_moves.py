"""Moves of tasks that lead to the best placement found, in a good order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict

import numpy as np

from emu.errors import PlacementError
from emu.prediction.analysis.what_if import Change, span
from emu.prediction.placement import affordable, best_placement
from emu.prediction.placement.moves import Neighbour
from emu.prediction.placement.packing import sum_edge_bytes
from emu.prediction.placement.space import Space
from emu.prediction.placement.symmetry import find_symmetry, hub_followers, relabel
from emu.problem import Placement, Problem

if TYPE_CHECKING:
    from emu.prediction.analysis.what_if import Stated

    Units = frozenset[int]

#: Placements that are simulated at most to put moves in order, and their flows; the
#: moves that are left then are one step.
MOST_TRIED = 1000
FLOWS = 4_000_000

#: Share of the makespan below which no task is worth a move.
_WORTH = 1e-5
#: Share of a link's bytes below which a difference is not worth a word.
_NOTICED = 0.01


class PlacementKeys(TypedDict):
    """Section ``placement`` of a scenario: the machine of every process."""

    policy: str
    tasks: dict[str, str]


class TaskMoveKeys(TypedDict):
    """A step as `emu explain` writes it, see `TaskMove`."""

    what: str
    makespan: float
    gain: float
    why: str
    moves: list[dict[str, str]]
    """``task`` from one machine to another one."""
    placement: PlacementKeys
    edit: dict[str, Any] | None
    """Keys of the scenario that place tasks so; None where no scenario is known."""


@dataclass(frozen=True, eq=False)
class TaskMove:
    """One step on the way, a move or some together, and what it is worth."""

    near: Neighbour
    """Moves of this step, and the placement after it."""
    run: Change
    """The run after it."""
    makespan: float
    """Simulated seconds after it."""
    gain: float
    """Seconds less than before it."""
    why: str
    """Link that carries less, in words; empty where none does."""
    edit: Mapping[str, Any] | None
    """Keys of the scenario that place tasks so; None where no scenario is known."""

    @property
    def problem(self) -> Problem:
        """Job and placement after the step."""
        return self.run.problem

    def to_json(self) -> TaskMoveKeys:
        """Return the step, its gain, and the placement to paste."""
        moves = []
        for move in self.near.moves:
            keys = {
                "task": move.process,
                "from": move.source,
                "to": move.destination,
            }
            moves.append(keys)
        edit = None
        if self.edit is not None:
            edit = dict(self.edit)

        return {
            "what": str(self.near),
            "makespan": self.makespan,
            "gain": self.gain,
            "why": self.why,
            "moves": moves,
            "placement": write_placement(self.problem),
            "edit": edit,
        }


@dataclass(frozen=True)
class TaskMoves:
    """The way to the best placement found; no steps where the present one is that."""

    before: float
    """Makespan as it is, seconds."""
    steps: tuple[TaskMove, ...]

    @property
    def count(self) -> int:
        """Processes that move."""
        return sum(len(step.near.moves) for step in self.steps)

    @property
    def makespan(self) -> float:
        """Makespan after all steps, seconds."""
        return self.steps[-1].makespan if self.steps else self.before


NO_MOVES = TaskMoves(0.0, ())


def task_moves(base: Change, stated: Stated | None = None) -> TaskMoves:
    """Return the moves from ``base`` to the best placement found, in a good order.

    Moves that the makespan does not need are left out. Of the others, the next step is
    the one after which the makespan is least: a process, a worker with its samplers, or
    a swap; every step leaves a placement that keeps pins and capacities.

    Raises ValueError when the realization does not fit the job.
    """
    problem = base.problem
    reference = problem.reference(base.realization)
    placement = problem.placement
    best = placement
    # A search that finds nothing feasible leaves the run as it is: no moves, no error.
    with suppress(PlacementError):
        if stated is not None:
            best = stated.best(problem, reference)
        else:
            outcome = best_placement(
                problem.job,
                problem.cluster,
                reference,
                base.policy,
                known=[placement],
            )
            best = outcome.placement

    first_makespan = span(base)
    if best == placement:
        return TaskMoves(first_makespan, ())
    order = _MoveOrder(base, stated)
    # Judged once more as this very run, with its deaths: what is better by rounding
    # alone is no advice.
    is_worth_it = order.length(best) < first_makespan * (1 - _WORTH)
    steps = tuple(order.steps(best)) if is_worth_it else ()
    return TaskMoves(first_makespan, steps)


class _MoveOrder:
    """Puts the moves between two placements of a job in order."""

    def __init__(self, base: Change, stated: Stated | None) -> None:
        self._base = base
        self._stated = stated
        problem = base.problem
        self._reference = problem.reference(base.realization)
        self._space = Space(problem.job, problem.cluster, apart=True)
        self._present = self._space.machines(problem.placement)
        # Counted in flows and not in seconds, so that every host finds the same moves.
        self._left = affordable(problem.job, base.policy, FLOWS, MOST_TRIED)
        #: Placement -> makespan: groups overlap, and lead to the same ones.
        self._known: dict[Placement, float] = {}

        self._teams: list[Units] = []
        for hub, followers in hub_followers(self._space):
            team = frozenset([hub, *followers])
            self._teams.append(team)

    def run(self, placement: Placement) -> Change:
        """Return the run with another placement."""
        problem = replace(self._base.problem, placement=placement)
        if self._stated is not None:
            problem = self._stated.reorder_rings(problem)
        # Times are of the machine where a task stood: reference times are stretched by
        # the slowness of the one where it stands now.
        realization = problem.stretch(self._reference)
        return replace(self._base, problem=problem, realization=realization)

    def length(self, placement: Placement) -> float:
        """Return the makespan with a placement, infinite for one that cannot be."""
        if placement in self._known:
            return self._known[placement]

        problem = self._base.problem
        makespan = np.inf
        # Some moves of a feasible way break a capacity half way: they cost no
        # simulation.
        if not placement.violations(problem.job, problem.cluster):
            self._left -= 1
            run = self.run(placement)
            makespan = span(run)
        self._known[placement] = makespan
        return makespan

    def steps(self, best: Placement) -> Iterator[TaskMove]:
        """Yield the steps to ``best``; none is longer than the one before it.

        Moves that pay only with later ones are one step with them.
        """
        # Interchangeable tasks may take each other's place: where those stay that can,
        # fewer move.
        symmetry = find_symmetry(self._space, self._reference)
        target = self._space.machines(best)
        twin = relabel(symmetry, target, self._present)
        twin_placement = self._space.placement(twin)
        if self.length(twin_placement) <= self.length(best):
            target = twin

        def with_moved(units: Units) -> Placement:
            machines = self._present.copy()
            rows = list(units)
            machines[rows] = target[rows]
            return self._space.placement(machines)

        differs = target != self._present
        rest = frozenset(np.flatnonzero(differs).tolist())
        # The tolerance is one for all: allowed at each step it would add up.
        enough = self.length(with_moved(rest)) * (1 + _WORTH)
        for group in self._groups(rest):  # what may as well stay, stays
            fewer = rest - group
            is_affordable = self._left > 0 and fewer < rest
            if is_affordable and self.length(with_moved(fewer)) <= enough:
                rest = fewer

        moved_units: Units = frozenset()
        placement = with_moved(moved_units)
        last_placement = placement
        while rest and self.length(placement) > enough:
            step = self._next(moved_units, rest, with_moved)
            moved_units |= step
            rest -= step
            placement = with_moved(moved_units)
            if self.length(placement) < self.length(last_placement):
                yield self._step(last_placement, placement)
                last_placement = placement

    def _next(
        self,
        done: Units,
        left: Units,
        placed: Callable[[Units], Placement],
    ) -> Units:
        """Return the units that move next: those after which the run is shortest."""
        if self._left <= 0:
            return left
        best = left
        # Of equally good groups the smaller: a reader moves as little as possible.
        least = (np.inf, 0)
        for group in self._groups(left):
            placement = placed(done | group)
            cost = (self.length(placement), len(group))
            if cost < least:
                best = group
                least = cost
        return best

    def _groups(self, units: Units) -> list[Units]:
        """Return groups that may move at once: teams, units, pairs where few are."""
        # A worker that moves without its samplers may gain nothing: teams are tried as
        # one.
        groups = [team & units for team in self._teams if team & units]
        in_order = sorted(units)
        groups += [frozenset([unit]) for unit in in_order]
        # A swap may pay where neither of its moves does, but pairs are many.
        count = len(units)
        pairs = count * (count - 1) // 2
        if pairs <= self._left // max(count, 1):
            groups += map(frozenset, combinations(in_order, 2))
        return list(dict.fromkeys(groups))

    def _step(self, old: Placement, new: Placement) -> TaskMove:
        problem_before = self.run(old).problem
        run = self.run(new)
        makespan = self.length(new)
        edit = None
        if self._stated is not None:
            edit = self._stated.standing(run.problem)
        return TaskMove(
            near=Neighbour.of(problem_before, new),
            run=run,
            makespan=makespan,
            gain=self.length(old) - makespan,
            why=self._why(problem_before, run.problem),
            edit=edit,
        )

    def _why(self, old: Problem, new: Problem) -> str:
        """Return which link is relieved most, for what it can carry, and of what."""
        loads = self._loads(old)
        loads_after = self._loads(new)
        port = self._find_relieved_port(loads, loads_after)
        if port is None:
            return ""

        sizes = loads[port]
        sizes_after = loads_after[port]
        # The kind of flows that shrinks most stands for all that the link is spared.
        kind = max(sizes, key=lambda kind: sizes[kind] - sizes_after[kind])
        source, destination = kind
        content = f"bytes of {source} -> {destination}"
        if self._stated is not None:
            content = self._stated.content_of(kind)

        size = sizes[kind]
        size_after = sizes_after[kind]
        link = _name_sender(self._base.problem, port)
        if size and size_after <= _NOTICED * size:
            return f"{link.name} no longer {link.verb}s the {content}"
        share = 1.0 - size_after / size if size else 0.0
        if share < _NOTICED:
            return ""
        return f"{link.name} {link.verb}s {100 * share:.0f} % less of the {content}"

    def _find_relieved_port(self, loads: _Loads, loads_after: _Loads) -> int | None:
        """Return the port that is spared most of what it can carry; None for none."""
        # What every link can carry in the time of the run; capacities may change.
        steps = self._base.problem.links.steps
        end = np.array([span(self._base)])
        reliefs = {}
        for port, sizes in loads.items():
            bytes_after = sum(loads_after[port].values())
            relief = sum(sizes.values()) - bytes_after
            if relief > 0:
                # As a share of what the link can carry: a thousand bytes matter on a
                # slow one only.
                capacity = steps.carry(port, end)
                reliefs[port] = relief / float(capacity[0])
        return max(reliefs, key=reliefs.__getitem__, default=None)

    def _loads(self, problem: Problem) -> _Loads:
        """Return bytes of the run by link and kinds of task at both ends."""
        job = problem.job
        loads = defaultdict[int, Any](lambda: defaultdict(float))
        sizes = sum_edge_bytes(job, self._base.realization)
        for position, edge in enumerate(job.edges):
            source, destination = job.ends(edge)
            kinds = source.kind, destination.kind
            volume = float(sizes[position])
            for port in problem.hops[position]:
                loads[port][kinds] += volume
        return loads


#: Port -> (kinds of task at both ends) -> bytes.
_Loads: TypeAlias = dict[int, dict[tuple[str, str], float]]


class _Sender(NamedTuple):
    """A link in a sentence: its name, and the stem of what it does with bytes."""

    name: str
    verb: str


def _name_sender(problem: Problem, port: int) -> _Sender:
    link = problem.links[port]
    if link.machine < 0:
        # With an s behind it the stem is right for a NIC and a link: sends, carries.
        return _Sender(f"link {link.name}", "carrie")
    machine = problem.cluster.machines[link.machine].name
    verb = "send" if link.direction == "out" else "receive"
    return _Sender(f"{machine}'s NIC", verb)


def write_placement(problem: Problem) -> PlacementKeys:
    """Return the section ``placement`` that spells out where ``problem`` stands."""
    machine_of = problem.machine_of_task
    tasks = {}
    for process, (first_task, *_) in problem.job.units.items():
        name = problem.job.tasks[first_task].name
        tasks[process] = machine_of[name]
    return {"policy": "explicit", "tasks": tasks}
