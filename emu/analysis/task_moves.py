"""Which task should move? Every move and swap in a placed job, simulated."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.placement import affordable
from emu.placement.candidates import candidates, lower_bound
from emu.placement.neighbours import neighbours
from emu.placement.resource_load import sent_bytes
from emu.placement.space import Space
from emu.problem import Problem
from emu.simulation.simulate import makespan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.analysis.what_if import Change
    from emu.placement.neighbours import Neighbour
    from emu.problem import Link

#: Moves that are simulated at most, those with the lowest bounds first, and flows that
#: are simulated for them. The paper's testbed has 94 moves, which take 0.1 s.
MOST_MOVES, FLOWS = 300, 4_000_000

#: Share of the makespan below which nobody would move a task.
_WORTH = 1e-5
#: What the flows of DGTP's job carry.
_CARRIED = {
    ("graph_store", "sampler"): "features",
    ("sampler", "worker"): "mini-batches",
    ("worker", "parameter_server"): "gradients",
    ("parameter_server", "worker"): "parameters",
}
#: Share of a link's bytes below which a difference is not worth a word.
_NOTICED = 0.01


@dataclass(frozen=True, eq=False)
class TaskMove:
    """A move or a swap and what it is worth.

    Parameters
    ----------
    makespan
        Simulated, seconds.
    gain
        Seconds less than without it; negative when it makes the run longer.
    why
        Which link carries less, in words; empty where none does.
    """

    near: Neighbour
    problem: Problem
    makespan: float
    gain: float
    why: str

    def to_json(self) -> dict[str, Any]:
        """Return what it is, what it is worth, and the placement to paste."""
        return {
            "what": str(self.near),
            "makespan": self.makespan,
            "gain": self.gain,
            "why": self.why,
            "moves": [
                {"task": move.process, "from": move.source, "to": move.destination}
                for move in self.near.moves
            ],
            "placement": pasted(self.problem),
        }


@dataclass(frozen=True)
class TaskMoves:
    """The moves and swaps of a placement, best first.

    Parameters
    ----------
    feasible
        How many there are that keep pins and capacities, one of each kind of equals.
    found
        Those that were simulated: all of them where that takes no minute.
    """

    feasible: int
    found: tuple[TaskMove, ...]

    def helping(self, makespan: float) -> tuple[TaskMove, ...]:
        """Return those that make a run of ``makespan`` seconds noticeably shorter."""
        return tuple(move for move in self.found if move.gain > _WORTH * makespan)


NO_MOVES = TaskMoves(0, ())


def task_moves(base: Change) -> TaskMoves:
    """Simulate every feasible move and swap of ``base``: `neighbours` says which.

    Raises
    ------
    ValueError
        When the realization does not fit the job.
    """
    problem = base.problem
    reference = problem.reference(base.realization)
    near = list(neighbours(problem, reference))
    most = affordable(problem.job, base.policy, FLOWS, MOST_MOVES)
    if len(near) > most:
        near_bounds = _bounds(base, near)
        near = [near[i] for i in np.argsort(near_bounds, kind="stable")[:most]]
        feasible = len(near_bounds)
    else:
        feasible = len(near)
    before = makespan(problem, base.realization, base.policy)
    loads, room = _loads(base, problem), _room(problem, before)
    found = []
    for neighbour in near:
        moved = Problem(problem.cluster, problem.job, neighbour.placement)
        after = makespan(moved, moved.taken(reference), base.policy)
        found.append(TaskMove(neighbour, moved, after, before - after, ""))
    found.sort(key=lambda move: move.makespan)
    explained = [
        replace(move, why=_why(problem, room, loads, _loads(base, move.problem)))
        for move in found
    ]
    return TaskMoves(feasible, tuple(explained))


def pasted(problem: Problem) -> dict[str, Any]:
    """Return the section ``placement`` that spells out where ``problem`` stands."""
    machines = problem.cluster.machines
    return {
        "policy": "explicit",
        "tasks": {
            process: machines[problem.placement.machine_of[first]].name
            for process, (first, *_) in problem.job.units.items()
        },
    }


def _bounds(base: Change, near: list[Neighbour]) -> NDArray[np.float64]:
    space = Space(base.problem.job, base.problem.cluster)
    c = candidates(space, base.realization, "oes")
    return np.array(
        [
            lower_bound(
                c.transfers,
                c.costs,
                np.array(one.placement.machine_of, dtype=np.int64),
            )
            for one in near
        ]
    )


#: Bytes of the run by link and kind of edge.
_Loads = dict[int, dict[tuple[str, str], float]]


def _loads(base: Change, problem: Problem) -> _Loads:
    job = problem.job
    loads: _Loads = defaultdict(lambda: defaultdict(float))
    sent = sent_bytes(job, base.realization).tolist()
    for edge, hops, volume in zip(job.edges, problem.hops, sent, strict=True):
        kinds = job.tasks[edge.source].kind, job.tasks[edge.destination].kind
        for port in hops:
            loads[port][kinds] += volume
    return loads


def _room(problem: Problem, seconds: float) -> list[float]:
    """Return the bytes that every link can carry in ``seconds``; they may change."""
    steps, end = problem.links.steps, np.array([seconds])
    return [float(steps.carried(port, end)[0]) for port in range(len(problem.links))]


def _why(problem: Problem, room: list[float], before: _Loads, after: _Loads) -> str:
    """Return which link is relieved most, for what it can carry, and of what."""
    relieved = {
        port: less / room[port]
        for port, kinds in before.items()
        if (less := sum(kinds.values()) - sum(after[port].values())) > 0
    }
    if not relieved:
        return ""
    port = max(relieved, key=lambda p: relieved[p])
    kind = max(before[port], key=lambda k: before[port][k] - after[port][k])
    was, now = before[port][kind], after[port][kind]
    what = _CARRIED.get(kind) or f"bytes of {kind[0]} -> {kind[1]}"
    link, verb = _link_words(problem, problem.links[port])
    if was and now <= _NOTICED * was:
        return f"{link} no longer {verb}s the {what}"
    share = 1.0 - now / was if was else 0.0
    if share < _NOTICED:
        return ""
    return f"{link} {verb}s {100 * share:.0f} % less of the {what}"


def _link_words(problem: Problem, link: Link) -> tuple[str, str]:
    if link.machine < 0:
        return f"link {link.name}", "carrie"
    machine = problem.cluster.machines[link.machine].name
    return f"{machine}'s NIC", "send" if link.direction == "out" else "receive"
