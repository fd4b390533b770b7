"""Changes that would make a run faster: the same run simulated anew with one of them.

A critical path shows where the time went, not what it would take to get it back: when
one part gets shorter, another chain takes over. So every proposal is simulated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

import numpy as np

from emu.array_types import Floats
from emu.errors import NodeLost, SchedulingError
from emu.prediction.analysis.critical_path import Cause, ChainLink, CriticalPath
from emu.prediction.scheduling import list_rules
from emu.prediction.simulation.simulate import makespan
from emu.problem import Edge, Job, Placement, Problem, Realization
from emu.problem.workloads import RELEASE, window_of

if TYPE_CHECKING:
    #: Returns the makespan of a job under a rate policy, with its deaths.
    Lengths = Callable[[Problem, Realization, str], float]

#: So many times the capacity count as an infinite one: a flow of hours takes 1 us.
ENDLESS = 1e9
#: Single tasks of the chain that are proposed, those with most time on it.
CHAIN_TASKS = 5
#: Machines whose NICs are: of 64, each tried, 128 of 201 simulations changed nothing.
NICS = 16
#: What is tried of each kind: one step that is within reach, and the most that there is
#: to gain.
_CAPACITY = ((2.0, "twice as fast"), (ENDLESS, "endless"))
_LATENCY = ((0.5, "half of all latencies"), (0.0, "no latency"))
_TIME = ((0.5, "twice as fast"), (0.0, "in no time"))
_BYTES = ((0.5, "half the bytes"), (0.0, "no bytes"))


class ChangeKeys(TypedDict):
    """A change in words, and as keys and values of the scenario."""

    kind: str
    what: str
    edit: dict[str, Any] | None


class ImprovementKeys(ChangeKeys):
    """A change and what it is worth, seconds."""

    makespan: float
    gain: float


@dataclass(frozen=True, eq=False)
class Change:
    """A run with one thing changed."""

    kind: str
    """``network``, ``latency``, ``compute``, ``bytes``, ``policy``, ``window``,
    ``slots``, ``events``, ``machine``, or ``pair`` of network and compute."""
    what: str
    """The change in words."""
    problem: Problem
    realization: Realization
    policy: str
    """The changed run."""
    rows: tuple[int, ...] = ()
    """Positions of the links, tasks or edges that are changed."""
    factor: float = 1.0
    """Multiplier of their capacities, times or bytes, or the window; inf for no
    window."""
    pool: str = ""
    """Name of the pool that has more slots, else empty."""
    edit: Mapping[str, Any] | None = None
    """The same as keys and values of the scenario; None where it has no such keys."""
    with_deaths: Lengths | None = None
    """Returns its makespan where its job dies; None where it does not."""
    added: float = 0.0
    """Seconds that deaths have added to a run that was recorded: known no better."""

    def to_json(self) -> ChangeKeys:
        """Return the change in words and as an edit of the scenario."""
        edit = None
        if self.edit is not None:
            edit = dict(self.edit)
        return {
            "kind": self.kind,
            "what": self.what,
            "edit": edit,
        }


@dataclass(frozen=True, eq=False)
class Improvement:
    """A change and what it is worth."""

    change: Change
    makespan: float
    """Simulated, with the change, seconds."""
    gain: float
    """Seconds less than without it; negative when it makes the run longer."""

    def to_json(self) -> ImprovementKeys:
        """Return the change, as an edit as well, and its gain."""
        return {
            **self.change.to_json(),
            "makespan": self.makespan,
            "gain": self.gain,
        }


class Stated(Protocol):
    """The scenario that a run comes from, as far as what-ifs ask for it."""

    notes: list[str]
    """Changes that were not tried, and why."""

    def premise_of_moves(self, job: Job) -> str:
        """Return what the times of moved tasks presume; empty where that is nothing."""

    def reorder_rings(self, problem: Problem) -> Problem:
        """Return the problem with rings in the order that its placement asks for."""

    def best(self, problem: Problem, reference: Realization) -> Placement:
        """Return the result of the scenario's best placement search."""

    def standing(self, problem: Problem) -> Mapping[str, Any]:
        """Return keys and values that state where the tasks of a problem stand."""

    def add_edit(self, change: Change) -> Change:
        """Return a change with its keys and values, and what follows from them."""

    def faster_rates(self, base: Change) -> Iterator[Change]:
        """Yield each rate of operations twice as fast, where the scenario has rates."""

    def placed_anew(self, changes: Iterable[Change]) -> Iterator[Change]:
        """Yield changes of the rule for rates, with the placement found under it."""

    def more_machines(self, base: Change) -> Iterator[Change]:
        """Yield one more machine of every kind, placed anew."""

    def fewer_machines(self, base: Change) -> Iterator[Change]:
        """Yield the machines that ``best`` chooses, placed anew."""

    def content_of(self, kinds: tuple[str, str]) -> str:
        """Return the content of flows between two kinds of task, a plural."""


def rank(base: Change, changes: Iterable[Change]) -> list[Improvement]:
    """Simulate ``base`` and every one of ``changes``; return them by gain, best first.

    Changes that make no difference are ranked too, with a gain of 0.
    """
    # Simulated, too: of a recorded run gains are against its replay, so that what no
    # simulation has is on neither side.
    before = span(base)
    improvements = []
    for change in changes:
        after = span(change)
        improvement = Improvement(
            change=change,
            makespan=after,
            gain=before - after,
        )
        improvements.append(improvement)
    return sorted(improvements, key=lambda improvement: -improvement.gain)


#: Kinds of change that are tried two at once -> the factor of those that are.
_PAIRS = {"network": 2.0, "compute": 0.5}
#: Changes of which all pairs are tried, and the share of the makespan that one alone
#: brings at most, and that both bring more than the two alone.
_PAIRED = 6
_MORE = 0.01


def rank_pairs(
    base: Change,
    alone: Iterable[Improvement],
    edited: Callable[[Change], Change],
) -> list[Improvement]:
    """Return two changes at once that bring more than both, each of which does little.

    Links and tasks twice as fast: of two NICs one may take what the other saves. Paired
    are those whose link or task is busy for longest.
    """
    before = span(base)
    little = _MORE * before
    candidates = []
    for improvement in alone:
        change = improvement.change
        is_of_kind = _PAIRS.get(change.kind) == change.factor
        # Where tasks follow from links, as those of a plan do, an edit has built other
        # ones: their rows are not those of the base.
        has_same_plan = change.problem.job is base.problem.job
        does_little = abs(improvement.gain) < little
        if is_of_kind and has_same_plan and does_little:
            candidates.append(improvement)
    # Six make 15 pairs, as many simulations: what is busy longest has most to give.
    candidates.sort(key=lambda improvement: -_seconds(base, improvement.change))

    pairs = []
    for first, second in combinations(candidates[:_PAIRED], 2):
        both = _both(base, first.change, second.change)
        gain = before - span(both)
        # What both bring is listed already where it is only the sum of the two.
        gain_of_each = max(first.gain, 0) + max(second.gain, 0)
        if gain > gain_of_each + little:
            if both.kind != "pair":  # a pair has the edits of both already
                both = edited(both)
            improvement = Improvement(
                change=both,
                makespan=before - gain,
                gain=gain,
            )
            pairs.append(improvement)
    return pairs


def _seconds(base: Change, change: Change) -> float:
    """Return for how long the busiest link or task of a change is busy."""
    if change.kind == "compute":
        seconds = base.realization.times.sum(axis=1)
    else:
        seconds = _link_seconds(base)
    # The busiest: a change may name all links of a machine, of which one is full.
    rows = list(change.rows)
    return float(seconds[rows].max())


def _link_seconds(base: Change) -> Floats:
    """Return for how long each link is busy with all bytes that cross it."""
    problem = base.problem
    load = np.zeros(len(problem.capacities))
    sizes = base.realization.volumes.sum(axis=1)
    for hops, volume in zip(problem.hops, sizes, strict=True):
        load[[*hops]] += volume
    return load / problem.capacities


def _scale(
    base: Change,
    kind: str,
    what: str,
    rows: Sequence[int],
    factor: float,
) -> Change:
    """Return the run with capacities, times or bytes of some rows times a factor."""
    problem = base.problem
    run = base.realization
    if kind == "network":
        cluster = problem.cluster.with_capacities(rows, factor)
        problem = replace(problem, cluster=cluster)
    else:
        # Copies: the base is used for every other change.
        times = np.array(run.times)
        volumes = np.array(run.volumes)
        table = times if kind == "compute" else volumes
        table[rows] *= factor
        run = Realization(times, volumes)

    return replace(
        base,
        kind=kind,
        what=what,
        rows=tuple(rows),
        factor=factor,
        problem=problem,
        realization=run,
    )


def _both(base: Change, first: Change, second: Change) -> Change:
    """Return two changes at once; one of two kinds has the edits of both."""
    first_name = first.what.removesuffix(" twice as fast")
    second_name = second.what.removesuffix(" twice as fast")
    words = f"{first_name} and {second_name} twice as fast"
    if first.kind == second.kind:
        rows = sorted({*first.rows, *second.rows})
        return _scale(base, first.kind, words, rows, first.factor)

    network = first
    compute = second
    if first.kind == "compute":
        network = second
        compute = first
    edit = None
    if first.edit is not None and second.edit is not None:
        edit = {**first.edit, **second.edit}
    return replace(
        network,
        kind="pair",
        what=words,
        edit=edit,
        realization=compute.realization,
    )


def changes_of(base: Change, chain: CriticalPath) -> Iterator[Change]:
    """Yield every change of ``base`` that needs no new placement.

    Every NIC (of many machines the 16 that are busy for longest), the ports of the
    chain and every kind of task twice as fast and endlessly so; half of all latencies
    and none; the tasks that take most of the chain, the same;
    the kinds of flows of the chain with half their bytes and none; every other rate
    policy; the credit window doubled and gone; twice as many slots in the pools of the
    chain; and no event: no capacity or speed that changes, and no death.
    """
    yield from _network(base, chain)
    yield from _latency(base)
    yield from _compute(base, chain)
    yield from _bytes(base, chain)

    for policy in list_rules(base.policy):  # each once, whatever its names
        words = f"rates by {policy}"
        yield replace(base, kind="policy", what=words, policy=policy)
    yield from _window(base)
    yield from _slots(base, chain)

    yield from _no_events(base)


def _no_events(base: Change) -> Iterator[Change]:
    """Yield the run in which no capacity and speed changes and no process dies.

    A run that was recorded keeps what its deaths added: they need not be of events.
    """
    cluster = base.problem.cluster
    has_changes = bool(cluster.changes or cluster.speed_changes)
    if not has_changes and base.with_deaths is None:
        return

    steady = replace(cluster, changes=(), speed_changes=())
    problem = replace(base.problem, cluster=steady)
    yield replace(
        base,
        kind="events",
        what="no events and failures",
        problem=problem,
        with_deaths=None,
    )


def span(run: Change) -> float:
    """Return the makespan, infinite where it deadlocks, or dies too often."""
    try:
        if run.with_deaths is not None:
            return run.with_deaths(run.problem, run.realization, run.policy)
        return run.added + makespan(run.problem, run.realization, run.policy)
    # Such a change is ranked last instead of ending the whole explanation.
    except (NodeLost, SchedulingError):
        return np.inf


def _network(base: Change, chain: CriticalPath) -> Iterator[Change]:
    problem = base.problem
    links = problem.links
    choices = [
        *_busiest_nics(base),
        *_ports_of_chain(problem, chain),
        *_alike_nics(problem),
    ]
    everything = "all NICs and links" if links.shared else "all NICs"
    choices.append((everything, {*range(len(links))}))

    crossed_ports = set[int]()
    for hops in problem.hops:
        crossed_ports.update(hops)
    for name, ports in choices:
        # A link that no flow crosses cannot change the makespan: no simulation.
        if not ports & crossed_ports:
            continue
        for factor, word in _CAPACITY:
            words = f"{name} {word}"
            yield _scale(base, "network", words, sorted(ports), factor)


#: Links by their name in a sentence, and their ports.
_Choices: TypeAlias = Iterator[tuple[str, set[int]]]


def _busiest_nics(base: Change) -> _Choices:
    links = base.problem.links
    machines = base.problem.cluster.machines
    nics = [links.of_machine(number) for number in range(len(machines))]
    busy = _link_seconds(base)
    longest = []
    for ports in nics:
        # A machine without a NIC has no ports: hence `initial`.
        seconds = busy[list(ports)].max(initial=0.0)
        longest.append(-seconds)

    busiest = np.argsort(longest, kind="stable")[:NICS]
    # In the order of the cluster, which decides among equal gains.
    for number in sorted(busiest.tolist()):
        yield f"NIC of {machines[number].name}", {*nics[number]}


def _ports_of_chain(problem: Problem, chain: CriticalPath) -> _Choices:
    ports = {link.port for link in chain.links} - {-1}
    for port in sorted(ports):
        link = problem.links[port]
        word = "port" if link.direction else "link"
        yield f"{word} {link.name}", {port}


def _alike_nics(problem: Problem) -> _Choices:
    """Yield NICs of one kind: where one slow one gains nothing, all of them may."""
    machines = problem.cluster.machines
    alike: dict[tuple[float, float], list[int]] = defaultdict(list)
    for number, machine in enumerate(machines):
        alike[machine.bandwidth_in, machine.bandwidth_out].append(number)
    for members in alike.values():
        if not 1 < len(members) < len(machines):
            continue

        names = []
        ports = set[int]()
        for number in members:
            names.append(machines[number].name)
            ports.update(problem.links.of_machine(number))
        yield f"NICs of {', '.join(names)}", ports


def _latency(base: Change) -> Iterator[Change]:
    problem = base.problem
    if not problem.latencies.any():
        return
    for factor, words in _LATENCY:
        cluster = problem.cluster.with_latencies(factor)
        yield replace(
            base,
            kind="latency",
            what=words,
            problem=replace(problem, cluster=cluster),
            factor=factor,
        )


def _task_of(link: ChainLink) -> int:
    """Return the task of a link of a chain; -1 for a flow or a gap."""
    if link.cause is Cause.GAP:
        return -1
    return link.task


def _compute(base: Change, chain: CriticalPath) -> Iterator[Change]:
    tasks = base.problem.job.tasks
    rows_of_kind: dict[str, list[int]] = defaultdict(list)
    for row, task in enumerate(tasks):
        # The release of a job is a date, not work that could be faster.
        if task.kind != RELEASE:
            rows_of_kind[task.kind].append(row)
    choices = [(f"every {kind}", rows) for kind, rows in rows_of_kind.items()]

    # Then single tasks, those that are not alone of their kind.
    busiest = chain.sums(_task_of)
    single = []
    for row in busiest:
        if row < 0:  # a flow, or a gap
            continue
        task = tasks[row]
        rows_alike = rows_of_kind[task.kind]
        if len(rows_alike) > 1:
            single.append((task.name, [row]))
    choices += single[:CHAIN_TASKS]

    for name, rows in choices:
        times = base.realization.times[rows]
        if not times.any():
            continue
        for factor, word in _TIME:
            words = f"{name} {word}"
            yield _scale(base, "compute", words, rows, factor)


def _bytes(base: Change, chain: CriticalPath) -> Iterator[Change]:
    job = base.problem.job
    kind_of_edge = [edge_kind(job, edge) for edge in job.edges]
    rows_of_kind: dict[str, list[int]] = defaultdict(list)
    for row, kind in enumerate(kind_of_edge):
        rows_of_kind[kind].append(row)

    # Only kinds on the chain: a job may have many, and each costs two simulations.
    kinds = set()
    for link in chain.links:
        if link.port >= 0:
            kinds.add(kind_of_edge[link.edge])
    for kind in sorted(kinds):
        for factor, word in _BYTES:
            words = f"{kind}: {word}"
            yield _scale(base, "bytes", words, rows_of_kind[kind], factor)


def edge_kind(job: Job, edge: Edge) -> str:
    """Return ``kind -> kind`` of the tasks that an edge joins."""
    source, destination = job.ends(edge)
    return f"{source.kind} -> {destination.kind}"


def _window(base: Change) -> Iterator[Change]:
    problem = base.problem
    job = problem.job
    if window_of(job) is None:
        return
    edges = []
    rows_left = []
    edges_left = []
    for row, edge in enumerate(job.edges):
        wider_edge = edge
        if edge.credit:
            wider_edge = replace(edge, lag=2 * edge.lag)
        edges.append(wider_edge)
        # Credits without lag order two tasks within an iteration: no window, so they
        # stay.
        if not (edge.credit and edge.lag):
            rows_left.append(row)
            edges_left.append(edge)
    doubled = replace(job, edges=tuple(edges))
    yield replace(
        base,
        kind="window",
        what="credit window doubled",
        factor=2.0,
        problem=replace(problem, job=doubled),
    )

    free = replace(job, edges=tuple(edges_left))
    run = base.realization
    volumes = run.volumes[rows_left]
    yield replace(
        base,
        kind="window",
        what="credit window unlimited",
        factor=np.inf,
        problem=replace(problem, job=free),
        realization=Realization(run.times, volumes),
    )


def _slots(base: Change, chain: CriticalPath) -> Iterator[Change]:
    """Yield twice the slots of pools that machines state and no rule tunes."""
    cluster = base.problem.cluster
    # A tuner would set other quotas at once: twice its slots is no lasting change.
    tuned_pools = {tuner.pool for tuner in cluster.tuners}
    pools_of_chain = {link.pool for link in chain.links} - {""}
    for pool in sorted(pools_of_chain - tuned_pools):
        machines = list(cluster.machines)
        rows = [row for row, machine in enumerate(machines) if pool in machine.slots]
        if not rows:
            continue  # a process that does one thing at a time
        for row in rows:
            machine = machines[row]
            slots = {**machine.slots, pool: 2 * machine.slots[pool]}
            machines[row] = replace(machine, slots=slots)

        wider = replace(cluster, machines=tuple(machines))
        yield replace(
            base,
            kind="slots",
            what=f"{pool} twice as many",
            rows=tuple(rows),
            problem=replace(base.problem, cluster=wider),
            factor=2.0,
            pool=pool,
        )
