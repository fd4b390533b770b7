"""Explain a run: causes of its length, drift from its simulation, what would help.

Among that the few moves of tasks that lead to the best placement found.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from typing_extensions import override

from emu.errors import PlacementError
from emu.prediction.analysis.critical_path import (
    ELSEWHERE,
    Cause,
    ChainLink,
    CriticalPath,
    Drift,
    critical_path,
    divergences,
)
from emu.prediction.analysis.what_if import (
    NICS,
    Change,
    changes_of,
    edge_kind,
    rank,
    rank_pairs,
    span,
)
from emu.prediction.placement import affordable, best_placement
from emu.prediction.placement.moves import (
    Neighbour,
    find_symmetry,
    hub_followers,
    relabel,
)
from emu.prediction.placement.packing import sum_edge_bytes
from emu.prediction.placement.space import Space
from emu.prediction.simulation import simulate
from emu.problem import Outages, Placement, Problem, Realization, Schedule

if TYPE_CHECKING:
    from emu.prediction.analysis.what_if import Improvement, Lengths, Stated

    Units = frozenset[int]

#: Placements that are simulated at most to put moves in order, and their flows; the
#: moves that are left then are one step.
MOST_TRIED = 1000
FLOWS = 4_000_000

#: Share of the makespan below which no task is worth a move.
_WORTH = 1e-5
#: Share of a link's bytes below which a difference is not worth a word.
_NOTICED = 0.01


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

    @property
    def problem(self) -> Problem:
        """Job and placement after the step."""
        return self.run.problem

    def to_json(self) -> dict[str, Any]:
        """Return the step, its gain, and the placement to paste."""
        return {
            "what": str(self.near),
            "makespan": self.makespan,
            "gain": self.gain,
            "why": self.why,
            "moves": [
                {"task": move.process, "from": move.source, "to": move.destination}
                for move in self.near.moves
            ],
            "placement": write_placement(self.problem),
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

    before = span(base)
    sequence = _MoveOrder(base, stated)
    if best == placement or not sequence.length(best) < before * (1 - _WORTH):
        return TaskMoves(before, ())
    return TaskMoves(before, tuple(sequence.steps(best)))


class _MoveOrder:
    """Puts the moves between two placements of a job in order."""

    def __init__(self, base: Change, stated: Stated | None) -> None:
        self._base = base
        self._stated = stated
        problem = base.problem
        self._reference = problem.reference(base.realization)
        self._space = Space(problem.job, problem.cluster, apart=True)
        self._present = self._space.machines(problem.placement)
        self._left = affordable(problem.job, base.policy, FLOWS, MOST_TRIED)
        #: Placement -> makespan: groups overlap, and lead to the same ones.
        self._known: dict[Placement, float] = {}
        self._teams = [
            frozenset((hub, *units)) for hub, units in hub_followers(self._space)
        ]

    def run(self, placement: Placement) -> Change:
        """Return the run with another placement."""
        problem = replace(self._base.problem, placement=placement)
        if self._stated is not None:
            problem = self._stated.reorder_rings(problem)
        realization = problem.stretch(self._reference)
        return replace(self._base, problem=problem, realization=realization)

    def length(self, placement: Placement) -> float:
        """Return the makespan with a placement, infinite for one that cannot be."""
        if placement not in self._known:
            job = self._base.problem.job
            cluster = self._base.problem.cluster
            self._known[placement] = np.inf
            if not placement.violations(job, cluster):
                self._left -= 1
                self._known[placement] = span(self.run(placement))
        return self._known[placement]

    def steps(self, best: Placement) -> Iterator[TaskMove]:
        """Yield the steps to ``best``; none is longer than the one before it.

        Moves that pay only with later ones are one step with them.
        """
        symmetry = find_symmetry(self._space, self._reference)
        target = self._space.machines(best)
        relabelled = relabel(symmetry, target, self._present)
        if self.length(self._space.placement(relabelled)) <= self.length(best):
            target = relabelled

        def with_moved(units: Units) -> Placement:
            machines = self._present.copy()
            machines[list(units)] = target[list(units)]
            return self._space.placement(machines)

        rest = frozenset(np.flatnonzero(target != self._present).tolist())
        enough = self.length(with_moved(rest)) * (1 + _WORTH)
        for group in self._groups(rest):  # what may as well stay, stays
            fewer = rest - group
            is_affordable = self._left > 0 and fewer < rest
            if is_affordable and self.length(with_moved(fewer)) <= enough:
                rest = fewer

        done: Units = frozenset()
        shown = with_moved(done)
        while rest and self.length(with_moved(done)) > enough:
            step = self._next(done, rest, with_moved)
            done |= step
            rest -= step
            if self.length(with_moved(done)) < self.length(shown):
                yield self._step(shown, with_moved(done))
                shown = with_moved(done)

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
        least = (np.inf, 0)
        for group in self._groups(left):
            length = self.length(placed(done | group))
            if (length, len(group)) < least:
                best = group
                least = (length, len(group))
        return best

    def _groups(self, units: Units) -> list[Units]:
        """Return groups that may move at once: teams, units, pairs where few are."""
        groups = [team & units for team in self._teams if team & units]
        groups += [frozenset([unit]) for unit in sorted(units)]
        # A swap may pay where neither of its moves does, but pairs are many.
        pairs = len(units) * (len(units) - 1) // 2
        if pairs <= self._left // max(len(units), 1):
            groups += [frozenset(pair) for pair in combinations(sorted(units), 2)]
        return list(dict.fromkeys(groups))

    def _step(self, before: Placement, after: Placement) -> TaskMove:
        run_before = self.run(before)
        run = self.run(after)
        makespan = self.length(after)
        return TaskMove(
            near=Neighbour.of(run_before.problem, after),
            run=run,
            makespan=makespan,
            gain=self.length(before) - makespan,
            why=self._why(run_before.problem, run.problem),
        )

    def _why(self, before: Problem, after: Problem) -> str:
        """Return which link is relieved most, for what it can carry, and of what."""
        problem = self._base.problem
        loads = self._loads(before)
        loads_after = self._loads(after)
        # What every link can carry in the time of the run; capacities may change.
        steps = problem.links.steps
        end = np.array([span(self._base)])
        reliefs = {}
        for port, kinds in loads.items():
            relief = sum(kinds.values()) - sum(loads_after[port].values())
            if relief > 0:
                reliefs[port] = relief / float(steps.carry(port, end)[0])
        if not reliefs:
            return ""

        port = max(reliefs, key=reliefs.__getitem__)
        sizes = loads[port]
        sizes_after = loads_after[port]
        kind = max(sizes, key=lambda kind: sizes[kind] - sizes_after[kind])
        content = f"bytes of {kind[0]} -> {kind[1]}"
        if self._stated is not None:
            content = self._stated.content_of(kind)
        link = _name_sender(problem, port)
        if sizes[kind] and sizes_after[kind] <= _NOTICED * sizes[kind]:
            return f"{link.name} no longer {link.verb}s the {content}"
        share = 1.0 - sizes_after[kind] / sizes[kind] if sizes[kind] else 0.0
        if share < _NOTICED:
            return ""
        return f"{link.name} {link.verb}s {100 * share:.0f} % less of the {content}"

    def _loads(self, problem: Problem) -> dict[int, dict[tuple[str, str], float]]:
        """Return bytes of the run by link and kinds of task at both ends."""
        job = problem.job
        loads = defaultdict[int, Any](lambda: defaultdict(float))
        sizes = sum_edge_bytes(job, self._base.realization).tolist()
        for edge, hops, volume in zip(job.edges, problem.hops, sizes, strict=True):
            kinds = job.tasks[edge.source].kind, job.tasks[edge.destination].kind
            for port in hops:
                loads[port][kinds] += volume
        return loads


class _Sender(NamedTuple):
    """A link in a sentence: its name, and the stem of what it does with bytes."""

    name: str
    verb: str


def _name_sender(problem: Problem, port: int) -> _Sender:
    link = problem.links[port]
    if link.machine < 0:
        return _Sender(f"link {link.name}", "carrie")
    machine = problem.cluster.machines[link.machine].name
    return _Sender(f"{machine}'s NIC", "send" if link.direction == "out" else "receive")


def write_placement(problem: Problem) -> dict[str, Any]:
    """Return the section ``placement`` that spells out where ``problem`` stands."""
    machines = problem.cluster.machines
    return {
        "policy": "explicit",
        "tasks": {
            process: machines[problem.placement.machine_of[first]].name
            for process, (first, *_) in problem.job.units.items()
        },
    }


#: Version of the JSON form.
VERSION = 1


@dataclass(frozen=True, eq=False)
class Explanation:
    """Causes of a schedule's length, and changes that would help."""

    schedule: Schedule
    chain: CriticalPath
    """Schedule that is explained, and its critical path."""
    simulated: Schedule | None
    apart: tuple[Drift, ...]
    """For an emulated schedule the simulation of its own times and volumes, and how the
    two drift apart along the chain; None and empty for a simulated one."""
    improvements: tuple[Improvement, ...]
    """Changes that would help, best first. Gains are against `replayed_makespan`."""
    realization: Realization
    """Its times and volumes."""
    moves: TaskMoves = NO_MOVES
    """The moves that lead to the best placement found."""
    improvements_then: tuple[Improvement, ...] = ()
    """Changes that would help after the moves, against their makespan; else empty."""
    notes: tuple[str, ...] = ()
    """Notes for the reader, such as parts of the run that are missing."""

    @override
    def __repr__(self) -> str:
        """Return the schedule explained, and the number of changes that would help."""
        return (
            f"<Explanation of {self.schedule!r}: {len(self.improvements)} would help>"
        )

    @property
    def replayed_makespan(self) -> float:
        """Makespan that the improvements are measured against, seconds."""
        return (self.simulated or self.schedule).makespan

    def to_json(self) -> dict[str, Any]:
        """Return the documented, stable form; seconds throughout.

        ``causes`` sums to ``makespan``; ``apart.parts`` sums to ``apart.seconds``.
        """
        problem = self.schedule.problem
        content: dict[str, Any] = {
            "version": VERSION,
            "makespan": self.schedule.makespan,
            "replayed_makespan": self.replayed_makespan,
            "causes": [*cause_rows(problem, self.chain), *death_rows(self.schedule)],
            "ports": port_rows(problem, self.chain),
            "chain": [
                {
                    "cause": str(link.cause),
                    "what": exact_name(problem, link),
                    "iteration": link.iteration,
                    "start": link.start,
                    "end": link.end,
                    "port": port_name(problem, link.port),
                }
                for link in self.chain.links
            ],
            "moves": [move.to_json() for move in self.moves.steps],
            "improvements": [gain.to_json() for gain in self.improvements],
            "improvements_after_moves": [
                gain.to_json() for gain in self.improvements_then
            ],
            "notes": list(self.notes),
        }
        if self.simulated is not None:
            content["apart"] = {
                "seconds": self.schedule.length - self.simulated.length,
                "parts": apart_rows(problem, self.apart),
            }
        return content


def explain(
    schedule: Schedule,
    realization: Realization,
    policy: str,
    *,
    emulated: bool,
    helpful: bool = True,
    notes: tuple[str, ...] = (),
    stated: Stated | None = None,
    replayed: Schedule | None = None,
    with_deaths: Lengths | None = None,
    outages: Outages | None = None,
) -> Explanation:
    """Return why ``schedule`` took so long.

    Parameters
    ----------
    realization, policy
        Its times and volumes, and its rate policy: what is simulated anew.
    emulated
        True to compare it with a simulation of the same times and volumes.
    helpful
        True to look for what would help, some 100 simulations and a placement search
        as it is and per kind of machine.
    stated
        The scenario it comes from: what-ifs are edits of it then, and one more machine
        is built in it.
    replayed
        That simulation of an emulated schedule, where it is known.
    with_deaths
        Returns the makespan of a changed run whose job dies; None where none does.
    outages
        Of the simulation that it is compared with; what-ifs keep them, too.
    """
    outages = outages or Outages()
    if emulated:
        if replayed is None:
            problem = schedule.problem.following(schedule)
            replayed = simulate(problem, realization, policy)
        if replayed.outages != outages:
            replayed = replace(replayed, outages=outages)

    explanation = Explanation(
        schedule=schedule,
        chain=critical_path(schedule),
        simulated=replayed,
        apart=divergences(schedule, replayed) if replayed is not None else (),
        improvements=(),
        realization=realization,
        notes=notes,
    )
    if not helpful:
        return explanation

    base = Change(
        kind="",
        what="as it is",
        problem=schedule.problem,
        realization=realization,
        policy=policy,
        with_deaths=with_deaths,
        added=outages.seconds,
    )
    return _with_improvements(explanation, base, stated)


def _with_improvements(
    explanation: Explanation,
    base: Change,
    stated: Stated | None,
) -> Explanation:
    moves = task_moves(base, stated)
    machine_changes: list[Change] = []
    if stated is not None:
        machine_changes += stated.fewer_machines(base)
        machine_changes += stated.more_machines(base)
    improvements = _rank_changes(
        base,
        explanation.chain,
        machine_changes,
        stated,
        searched=True,
    )
    improvements_then: tuple[Improvement, ...] = ()
    if moves.steps:
        target = moves.steps[-1].run
        schedule = simulate(target.problem, target.realization, base.policy)
        improvements_then = _rank_changes(
            target, critical_path(schedule), machine_changes, stated
        )

    notes = [*explanation.notes]
    if stated is not None:
        notes += stated.notes
    idle = len(base.problem.cluster.machines) - NICS
    if idle > 0:
        notes.append(f"NICs of {idle} machines that are less busy were not tried")
    return replace(
        explanation,
        moves=moves,
        improvements=improvements,
        improvements_then=improvements_then,
        notes=tuple(notes),
    )


def _rank_changes(
    base: Change,
    chain: CriticalPath,
    machine_changes: list[Change],
    stated: Stated | None,
    *,
    searched: bool = False,
) -> tuple[Improvement, ...]:
    """Return what would help, best first; ``searched`` where the scenario placed it."""
    if stated is None:
        changes = [*changes_of(base, chain)]
        improvements = rank(base, [*changes, *machine_changes])
        improvements += rank_pairs(base, improvements, lambda change: change)
    else:
        rules = []
        changes = []
        for change in changes_of(base, chain):
            if searched and change.kind == "policy":
                rules.append(change)
            else:
                changes.append(stated.add_edit(change))
        changes += stated.placed_anew(rules)
        changes += stated.faster_rates(base)
        improvements = rank(base, [*changes, *machine_changes])
        improvements += rank_pairs(base, improvements, stated.add_edit)
    return tuple(sorted(improvements, key=lambda improvement: -improvement.gain))


def death_rows(schedule: Schedule) -> list[dict[str, Any]]:
    """Return the rows of what deaths add to a schedule, as those of `cause_rows`."""
    outages = schedule.outages
    parts = {
        "recovery": outages.recovery,
        "attempts that ended": outages.seconds - outages.recovery,
    }
    row = {"cause": "deaths", "port": "", "pool": "", "links": 0}
    return [
        {**row, "what": part, "seconds": seconds}
        for part, seconds in parts.items()
        if seconds
    ]


def cause_rows(problem: Problem, chain: CriticalPath) -> list[dict[str, Any]]:
    """Return cause, what, port, pool, seconds and number of links.

    ``what`` is a kind of task, ``kind -> kind`` of a flow, or what a gap delayed.
    """
    counts = Counter(_row(problem, link) for link in chain.links)
    sums = chain.sums(lambda link: _row(problem, link))

    rows = []
    for row, seconds in sums.items():
        cause, name, port, pool = row
        rows.append(
            {
                "cause": str(cause),
                "what": name,
                "port": port_name(problem, port),
                "pool": pool,
                "seconds": seconds,
                "links": counts[row],
            }
        )
    return rows


def port_rows(problem: Problem, chain: CriticalPath) -> list[dict[str, Any]]:
    """Return port and seconds for which it held back flows of the chain."""
    sums = chain.sums(lambda link: link.port)
    return [
        {"port": port_name(problem, port), "seconds": seconds}
        for port, seconds in sums.items()
        if port >= 0
    ]


def apart_rows(problem: Problem, parts: tuple[Drift, ...]) -> list[dict[str, Any]]:
    """Return cause, what and seconds of a drift, greatest first, either sign."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for part in parts:
        name = "" if part.cause == ELSEWHERE else kind_name(problem, part.link)
        groups[str(part.cause), name].append(part.seconds)
    rows = [
        {"cause": cause, "what": name_of_part, "seconds": math.fsum(seconds)}
        for (cause, name_of_part), seconds in groups.items()
    ]
    return sorted(rows, key=lambda row: -abs(float(row["seconds"])))


def kind_name(problem: Problem, link: ChainLink) -> str:
    """Return the kind of what a link was, ``before`` it for a gap."""
    job = problem.job
    name = job.tasks[link.task].kind
    if link.edge >= 0:
        name = edge_kind(job, job.edges[link.edge])
    return f"before {name}" if link.cause is Cause.GAP else name


def exact_name(problem: Problem, link: ChainLink) -> str:
    """Return the task, or edge, of a link by name."""
    job = problem.job
    if link.edge >= 0:
        return job.edge_names[link.edge]
    return job.tasks[link.task].name


def port_name(problem: Problem, port: int) -> str:
    """Return the name of a port, empty for none."""
    return problem.links[port].name if port >= 0 else ""


def _row(problem: Problem, link: ChainLink) -> tuple[Cause, str, int, str]:
    pool = ""
    if link.pool:  # on the machine whose slot the end of its task gave back
        machine = problem.placement.machine_of[link.task]
        pool = f"{link.pool} of {problem.cluster.machines[machine].name}"
    return link.cause, kind_name(problem, link), link.port, pool
