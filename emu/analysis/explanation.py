"""Explain a run: causes of its length, drift from its simulation, what would help."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from emu.analysis.critical_path import ELSEWHERE, Cause, critical_path, divergences
from emu.analysis.task_moves import NO_MOVES, task_moves
from emu.analysis.what_if import Change, changes_of, edge_kind, rank
from emu.simulation import simulate

if TYPE_CHECKING:
    from emu.analysis.critical_path import ChainLink, CriticalPath, Drift
    from emu.analysis.task_moves import TaskMoves
    from emu.analysis.what_if import Improvement, Stated
    from emu.problem import Problem, Realization, Schedule

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
            "causes": cause_rows(problem, self.chain),
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
            "improvements": [one.to_json() for one in self.improvements],
            "improvements_after_moves": [
                one.to_json() for one in self.improvements_then
            ],
            "notes": list(self.notes),
        }
        if self.simulated is not None:
            content["apart"] = {
                "seconds": self.schedule.makespan - self.simulated.makespan,
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
) -> Explanation:
    """Return why ``schedule`` took so long.

    Parameters
    ----------
    realization, policy
        Its times and volumes, and its rate policy: what is simulated anew.
    emulated
        Whether to compare it with a simulation of the same times and volumes.
    helpful
        Whether to look for what would help, some 100 simulations and a placement search
        as it is and per kind of machine.
    stated
        The scenario it comes from: what-ifs are edits of it then, and one more machine
        is built in it.
    """
    chain = critical_path(schedule)
    followed = schedule.problem.following(schedule)
    replayed = simulate(followed, realization, policy) if emulated else None
    improvements: tuple[Improvement, ...] = ()
    then: tuple[Improvement, ...] = ()
    moves = NO_MOVES
    if helpful:
        base = Change("", "as it is", schedule.problem, realization, policy)
        moves = task_moves(base, stated)
        more = [] if stated is None else [*stated.more_machines(base)]
        improvements = _ranked(base, chain, more, stated)
        if moves.steps:
            moved = moves.steps[-1].run
            after = simulate(moved.problem, moved.realization, policy)
            then = _ranked(moved, critical_path(after), more, stated)
        notes += tuple(stated.notes) if stated is not None else ()
    return Explanation(
        schedule=schedule,
        chain=chain,
        simulated=replayed,
        apart=divergences(schedule, replayed, chain) if replayed is not None else (),
        improvements=improvements,
        realization=realization,
        moves=moves,
        improvements_then=then,
        notes=notes,
    )


def _ranked(
    base: Change, chain: CriticalPath, more: list[Change], stated: Stated | None
) -> tuple[Improvement, ...]:
    changes = [*changes_of(base, chain)]
    if stated is not None:
        changes = [stated.edited(one) for one in changes]
    return tuple(rank(base, [*changes, *more]))


def cause_rows(problem: Problem, chain: CriticalPath) -> list[dict[str, Any]]:
    """Return cause, what, port, pool, seconds and number of links.

    Seconds sum to the chain. ``what`` is a kind of task, ``kind -> kind`` of a flow, or
    what a gap delayed.
    """
    counts: dict[tuple[Cause, str, int, str], int] = defaultdict(int)
    for link in chain.links:
        counts[_row(problem, link)] += 1
    sums = chain.sums(lambda link: _row(problem, link))
    return [
        {
            "cause": str(key[0]),
            "what": key[1],
            "port": port_name(problem, key[2]),
            "pool": key[3],
            "seconds": seconds,
            "links": counts[key],
        }
        for key, seconds in sums.items()
    ]


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
        {"cause": cause, "what": what, "seconds": math.fsum(seconds)}
        for (cause, what), seconds in groups.items()
    ]
    return sorted(rows, key=lambda row: -abs(float(row["seconds"])))


def kind_name(problem: Problem, link: ChainLink) -> str:
    """Return the kind of what a link was, ``before`` it for a gap."""
    job = problem.job
    name = (
        edge_kind(job, job.edges[link.edge])
        if link.edge >= 0
        else job.tasks[link.task].kind
    )
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
    return link.cause, kind_name(problem, link), link.port, link.pool
