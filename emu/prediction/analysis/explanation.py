"""Explain a run: causes of its length, drift from its simulation, what would help.

Among that the few moves of tasks that lead to the best placement found.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

from typing_extensions import override

from emu.prediction.analysis.critical_path import (
    ELSEWHERE,
    Cause,
    ChainLink,
    CriticalPath,
    Drift,
    critical_path,
    divergences,
)
from emu.prediction.analysis.task_moves import NO_MOVES, TaskMoves, task_moves
from emu.prediction.analysis.what_if import (
    NICS,
    Change,
    changes_of,
    edge_kind,
    rank,
    rank_pairs,
)
from emu.prediction.simulation import simulate
from emu.problem import Outages, Problem, Realization, Schedule
from emu.problem.changes import TIE

if TYPE_CHECKING:
    from emu.prediction.analysis.what_if import Improvement, Lengths, Stated

#: Version of the JSON form.
#: Scripts read this form: a key that changes its meaning needs another version.
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
    again: float | None = None
    """Seconds of work that a simulated job does again after deaths; None where it is
    not known, as of a recorded one."""
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

    def death_rows(self) -> list[CauseRow]:
        """Return the rows of what deaths add, as those of `cause_rows`."""
        outages = self.schedule.outages
        rest = outages.seconds - outages.recovery
        parts = {"recovery": outages.recovery}
        if self.simulated is not None:
            # A run's schedule is its last attempt: what is left are those before it.
            parts["attempts that ended"] = rest
        elif self.again is None:
            parts["done again, and what follows"] = rest
        else:
            # A simulated one is the job that nobody kills. What follows a death comes
            # later, and may meet other events.
            change = rest - self.again
            if abs(change) <= TIE * self.schedule.makespan:
                change = 0.0  # of rounding alone
            parts["done again"] = self.again
            pace = "takes longer" if change > 0 else "goes faster"
            parts[f"what follows {pace}"] = change

        return [
            CauseRow(
                cause="deaths",
                what=part,
                port="",
                pool="",
                seconds=seconds,
                links=0,
            )
            for part, seconds in parts.items()
            if seconds
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the documented, stable form; seconds throughout.

        ``causes`` sums to ``makespan``; ``apart.parts`` sums to ``apart.seconds``.
        """
        problem = self.schedule.problem
        causes = cause_rows(problem, self.chain)
        content: dict[str, Any] = {
            "version": VERSION,
            "makespan": self.schedule.makespan,
            "replayed_makespan": self.replayed_makespan,
            "causes": [*causes, *self.death_rows()],
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
        # Lengths, not makespans: the parts lie along one attempt, and the seconds that
        # deaths add belong to none of them.
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
    again: float | None = None,
    watch: Callable[[str], None] = lambda _: None,
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
    again
        Seconds of work that a simulated job does again after deaths, where known.
    watch
        Is called with what is tried next.
    """
    outages = outages or Outages()
    if emulated:
        # Tuners repeat the quotas that they set in the run. Left to their rule they
        # would set others in the replay, and all that follows would count as drift.
        if replayed is None:
            problem = schedule.problem.following(schedule)
            replayed = simulate(problem, realization, policy)
        # A replay is of one attempt. Without the seconds that deaths add its makespan
        # could not be held against that of the whole run.
        if replayed.outages != outages:
            replayed = replace(replayed, outages=outages)

    explanation = Explanation(
        schedule=schedule,
        chain=critical_path(schedule),
        simulated=replayed,
        apart=divergences(schedule, replayed) if replayed is not None else (),
        improvements=(),
        realization=realization,
        again=again,
        notes=notes,
    )
    # The chain and its parts cost one simulation, what follows about a hundred.
    if not helpful:
        return explanation

    base = Change(
        kind="",
        what="as it is",
        problem=schedule.problem,
        realization=realization,
        policy=policy,
        with_deaths=with_deaths,
        # Of a recorded run it is not known what deaths would cost after a change: every
        # what-if keeps what they did cost.
        added=outages.seconds,
    )
    return _with_improvements(explanation, base, stated, watch)


def _with_improvements(
    explanation: Explanation,
    base: Change,
    stated: Stated | None,
    watch: Callable[[str], None],
) -> Explanation:
    def told(changes: Iterable[Change]) -> Iterator[Change]:
        for change in changes:
            watch(change.what)
            yield change

    watch("moves of tasks")
    moves = task_moves(base, stated)
    # Each of these is placed anew on its own machines, wherever the tasks stand now: so
    # they hold after the moves as well, and are made once.
    machine_changes: list[Change] = []
    if stated is not None:
        watch("fewer machines")
        machine_changes += stated.fewer_machines(base)
        watch("one more machine")
        machine_changes += told(stated.more_machines(base))
    improvements = _rank_changes(
        base,
        explanation.chain,
        machine_changes,
        stated,
        told=told,
        searched=True,
    )
    improvements_then: tuple[Improvement, ...] = ()
    # The moves may shift the bottleneck: another chain leads to other proposals, and
    # their gains are against the makespan after the moves.
    if moves.steps:
        target = moves.steps[-1].run
        schedule = simulate(target.problem, target.realization, base.policy)
        improvements_then = _rank_changes(
            target, critical_path(schedule), machine_changes, stated, told=told
        )

    return replace(
        explanation,
        moves=moves,
        improvements=improvements,
        improvements_then=improvements_then,
        notes=(*explanation.notes, *_notes(base, moves, stated)),
    )


def _notes(base: Change, moves: TaskMoves, stated: Stated | None) -> Iterator[str]:
    """Yield what was not tried, and what the moves presume."""
    if stated is not None:
        yield from stated.notes
        premise = stated.premise_of_moves(base.problem.job)
        if moves.steps and premise:
            yield premise
    idle = len(base.problem.cluster.machines) - NICS
    if idle > 0:
        yield f"NICs of {idle} machines that are less busy were not tried"


def _rank_changes(
    base: Change,
    chain: CriticalPath,
    machine_changes: list[Change],
    stated: Stated | None,
    *,
    told: Callable[[Iterable[Change]], Iterator[Change]],
    searched: bool = False,
) -> tuple[Improvement, ...]:
    """Return what would help, best first; ``searched`` where the scenario placed it."""
    if stated is None:
        changes = [*changes_of(base, chain)]
        improvements = rank(base, told([*changes, *machine_changes]))
        improvements += rank_pairs(base, improvements, lambda change: change)
    else:
        rules = []
        changes = []
        for change in changes_of(base, chain):
            # The search placed the tasks under the present rule and would place them
            # otherwise under another. With the old placement that rule looks worse than
            # it is.
            if searched and change.kind == "policy":
                rules.append(change)
            else:
                changes.append(stated.add_edit(change))
        changes += stated.placed_anew(told(rules))
        changes += stated.faster_rates(base)
        improvements = rank(base, told([*changes, *machine_changes]))
        improvements += rank_pairs(base, improvements, stated.add_edit)
    return tuple(sorted(improvements, key=lambda improvement: -improvement.gain))


class CauseRow(TypedDict):
    """Seconds of the chain that have one cause, in one place."""

    cause: str
    what: str
    """Kind of task, ``kind -> kind`` of a flow, or what a gap delayed."""
    port: str
    pool: str
    seconds: float
    links: int
    """Parts of the chain that are summed."""


class PortRow(TypedDict):
    """Seconds for which a port held back flows of the chain."""

    port: str
    seconds: float


class ApartRow(TypedDict):
    """Seconds by which a run was apart from its simulation, by cause."""

    cause: str
    what: str
    seconds: float


def cause_rows(problem: Problem, chain: CriticalPath) -> list[CauseRow]:
    """Return the seconds of the chain by cause and place."""
    # One key for both tables, so that a row has the number of links that it sums.
    counts = Counter(_row(problem, link) for link in chain.links)
    sums = chain.sums(lambda link: _row(problem, link))

    rows = []
    for place, seconds in sums.items():
        cause, name, port, pool = place
        row = CauseRow(
            cause=str(cause),
            what=name,
            port=port_name(problem, port),
            pool=pool,
            seconds=seconds,
            links=counts[place],
        )
        rows.append(row)
    return rows


def port_rows(problem: Problem, chain: CriticalPath) -> list[PortRow]:
    """Return port and seconds for which it held back flows of the chain."""
    sums = chain.sums(lambda link: link.port)
    return [
        {"port": port_name(problem, port), "seconds": seconds}
        for port, seconds in sums.items()
        # Computing and waiting links, and handoffs within a machine, have no port.
        if port >= 0
    ]


def apart_rows(problem: Problem, parts: tuple[Drift, ...]) -> list[ApartRow]:
    """Return cause, what and seconds of a drift, greatest first, either sign."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for part in parts:
        # The simulation waited for something off this chain: the part that came next
        # there is not to blame.
        name = "" if part.cause == ELSEWHERE else kind_name(problem, part.link)
        groups[str(part.cause), name].append(part.seconds)
    rows = []
    for (cause, name_of_part), seconds in groups.items():
        row = ApartRow(
            cause=cause,
            what=name_of_part,
            # Parts of either sign cancel: a plain sum would leave rounding as large as
            # the difference that is explained.
            seconds=math.fsum(seconds),
        )
        rows.append(row)
    return sorted(rows, key=lambda row: -abs(row["seconds"]))


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
