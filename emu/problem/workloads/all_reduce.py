"""Edges by the names of their tasks, credit windows, and all-reduce as tasks.

An all-reduce has steps that send a part on, and receivers of the parts.

A vector is cut into a chunk per rank, as ``numpy.array_split`` does. In the first half
of the steps what is received is added, in the second half it replaces: every rank has
the sum then, the same bits. A step begins when the one before has been received *and*
sent (specs, 2f), as the credit edges state: otherwise a fast rank overlaps its steps,
and the slowest gets slower.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

from emu.problem import Edge, Job, Task
from emu.problem.edges import EdgeColumns, columns_of
from emu.problem.workloads.model_shapes import shard_bounds

#: Kind of its tasks, which take no time unless it is stated.
ALL_REDUCE = "all_reduce"
#: Programs of the tasks of a rank.
STEP = "emu_nodes.all_reduce:Step"
RECEIVE = "emu_nodes.all_reduce:Receive"


def window_of(job: Job) -> int | None:
    """Return the credit window K that the credit edges of ``job`` keep; None: none.

    The paper lets graph stores run ahead without bound; real systems crash then, so
    they bound it. With window K, iteration n of a graph store waits for the end of
    iteration n - K of every worker that its data reaches: edges worker -> store of lag
    K.

    Those without lag order the steps of a ring.
    """
    lags = [edge.lag for edge in job.edges if edge.credit and edge.lag > 0]
    return min(lags, default=None)


def _reachable_ends(followers: list[list[int]], ends: Sequence[int]) -> list[int]:
    """Return per task a whole number whose bit i means that it reaches ``ends[i]``.

    A set of tasks each took 9 s where 21,000 tasks have 42,000 edges. What lies on a
    cycle reaches nothing: no job may have one.
    """
    sources: list[list[int]] = [[] for _ in followers]
    for task, next_tasks in enumerate(followers):
        for follower in next_tasks:
            sources[follower].append(task)

    # Whole numbers of Python have as many bits as there are ends.
    reach = [0] * len(followers)
    for bit, end in enumerate(ends):
        reach[end] |= 1 << bit

    # From the last tasks backwards, each after all that follow it.
    missing = [len(next_tasks) for next_tasks in followers]
    queue = [task for task, count in enumerate(missing) if count == 0]
    for task in queue:  # grows while it is walked
        for source in sources[task]:
            reach[source] |= reach[task]
            missing[source] -= 1
            if missing[source] == 0:
                queue.append(source)
    return reach


def credit_edges(
    tasks: Sequence[Task],
    edges: Sequence[Edge],
    window: int | None,
) -> tuple[Edge, ...]:
    """Return the credit edges of ``window``, worker-major, in the order of the tasks.

    They end at the tasks that start an iteration: every ``graph_store`` without an
    in-edge of lag 0 or, where there is none such (multi-round sampling starts at the
    samplers; a custom job may have no stores), every task without one. They come from
    every ``worker`` reachable from there over edges of lag 0 or, where no task is
    called so, from every reachable task without an out-edge of lag 0.

    Without a window, which is unlimited, there are none. Raises ValueError when it is
    less than 1.
    """
    if window is None:
        return ()
    if window < 1:
        raise ValueError(f"a credit window of {window} would let nothing start")
    followers: list[list[int]] = [[] for _ in tasks]
    fed_tasks = set()
    for edge in edges:
        if edge.lag == 0:
            followers[edge.source].append(edge.destination)
            fed_tasks.add(edge.destination)

    everything = range(len(tasks))
    sources = [task for task in everything if task not in fed_tasks]
    stores = [task for task in sources if tasks[task].kind == "graph_store"]
    starts = stores or sources
    workers = [j for j, task in enumerate(tasks) if task.kind == "worker"]
    ends = workers or [task for task in everything if not followers[task]]

    reach = _reachable_ends(followers, ends)
    credits_: list[Edge] = []
    for bit, end in enumerate(ends):
        # A task waits for itself anyhow: it runs one iteration at a time.
        credits_ += [
            Edge(end, start, lag=window, credit=True)
            for start in starts
            if reach[start] >> bit & 1 and start != end
        ]
    return tuple(credits_)


class NamedEdge(NamedTuple):
    """An edge by the names of its tasks, with what its flow carries."""

    source: str
    destination: str
    lag: int = 0
    credit: bool = False
    carries: str = ""
    """Its name in a formula of volumes; empty for an edge without bytes."""
    place: tuple[int, ...] = ()
    """Further input of the formula: ranks, the number of a chunk."""
    channel: str = ""
    latest: bool = False
    coflow: str = ""
    """As in `Edge`."""


def phase_of(kind: str) -> str:
    """Return ``Task.phase`` of a kind that several systems have."""
    if kind.startswith(("graph_store", "sampler")):
        return "sampling"
    if kind == "worker":
        return "training"
    return ""


def build_named_job(
    tasks: Iterable[Task],
    edges: Iterable[NamedEdge],
    iterations: int,
    settings: Mapping[str, Any],
    *,
    window: int | None = None,
) -> Job:
    """Return the job of these tasks and edges, in their order, then the credit edges.

    Tasks without a phase have that of their kind.

    Raises ValueError as `Job` and `credit_edges`.
    """
    phased_tasks = []
    for task in tasks:
        phase = task.phase or phase_of(task.kind)
        phased_task = task
        if phase != task.phase:
            phased_task = replace(task, phase=phase)
        phased_tasks.append(phased_task)

    named_edges = _NamedEdges(
        names=[task.name for task in phased_tasks],
        kinds=[task.kind for task in phased_tasks],
        edges=list(edges),
        window=window,
    )
    return Job(
        tasks=tuple(phased_tasks),
        edges=_edges_of(named_edges, phased_tasks),
        iterations=iterations,
        settings=settings,
    )


@dataclass(frozen=True)
class _NamedEdges:
    """All that the edges of a job follow from."""

    names: list[str]
    """Names of the tasks, in their order."""
    kinds: list[str]
    """Their kinds."""
    edges: list[NamedEdge]
    window: int | None


#: Edges that were built last, with their columns: a table of systems tries several of
#: equal tasks on equal numbers of machines, of which 64 have 33,000 edges.
_latest = deque[tuple[_NamedEdges, EdgeColumns]](maxlen=4)


def _edges_of(named: _NamedEdges, tasks: Sequence[Task]) -> tuple[Edge, ...]:
    """Return the very edges that were built last, if they were of the same names."""
    # A copy, made at once: another thread may append while these are compared.
    for known, columns in tuple(_latest):
        if known == named:
            return columns.edges

    positions = {name: position for position, name in enumerate(named.names)}
    built = [
        Edge(
            source=positions[edge.source],
            destination=positions[edge.destination],
            lag=edge.lag,
            credit=edge.credit,
            channel=edge.channel,
            latest=edge.latest,
            coflow=edge.coflow,
        )
        for edge in named.edges
    ]
    built += credit_edges(tasks, built, named.window)
    columns = columns_of(tuple(built))
    _latest.append((named, columns))
    return columns.edges


class Transfer(NamedTuple):
    """Chunks that one rank sends to another in one step: ``first`` to ``last`` - 1."""

    receiver: int
    first: int
    last: int


#: Per step, the transfer of every rank.
Steps = tuple[tuple[Transfer, ...], ...]


@cache
def steps_of(algorithm: str, ranks: int) -> Steps:
    """Return the steps of ``ring`` or ``halving_doubling``; of one rank there is none.

    The first half of the steps adds.

    Raises ValueError when there is no such algorithm, or halving and doubling has ranks
    that are not a power of two.
    """
    if algorithm == "ring":
        return _ring(ranks)
    if algorithm != "halving_doubling":
        raise ValueError(f"all-reduce by {algorithm}: ring and halving_doubling exist")
    if ranks & (ranks - 1):
        raise ValueError(
            f"halving and doubling needs a power of two of ranks, not {ranks}: "
            "write ring"
        )
    return _halving_doubling(ranks)


def _ring(ranks: int) -> Steps:
    # Rank r sends to r + 1: chunk r - s to be added, then r + 1 - s (specs, 2f).
    steps = []
    for half in (0, 1):
        for number in range(ranks - 1):
            transfers = []
            for rank in range(ranks):
                receiver = (rank + 1) % ranks
                chunk = (rank + half - number) % ranks
                transfers.append(Transfer(receiver, chunk, chunk + 1))
            steps.append(tuple(transfers))
    return tuple(steps)


def _halving_doubling(ranks: int) -> Steps:
    # At distance d, rank r and r xor d share 2 d chunks; r keeps those on its side
    # (Thakur, Rabenseifner, Gropp 2005).
    halvings = []
    distance = ranks // 2
    while distance:
        transfers = []
        for rank in range(ranks):
            partner = rank ^ distance
            first = partner // distance * distance
            transfers.append(Transfer(partner, first, first + distance))
        halvings.append(tuple(transfers))
        distance //= 2

    doublings = []
    for step in reversed(halvings):
        # A rank gives back, to the same partner, what that one had sent it.
        answers = []
        for partner, *_ in step:
            gift = step[partner]
            answers.append(gift._replace(receiver=partner))
        doublings.append(tuple(answers))
    return (*halvings, *doublings)


def part_bounds(
    elements: int,
    ranks: int,
    first: int,
    last: int,
) -> tuple[int, int]:
    """Return where the first chunk begins and where ``last``, the next one, does."""
    bounds = _chunk_bounds(elements, ranks)
    begin, _ = bounds[first]
    _, end = bounds[last - 1]
    return begin, end


@lru_cache(maxsize=64)  # every flow of a ring asks for its chunks
def _chunk_bounds(elements: int, ranks: int) -> tuple[tuple[int, int], ...]:
    return tuple(shard_bounds(elements, ranks))


#: Tasks of rings that were built last, by `_part_of` their ranks: a table of systems
#: has the same ring in several rows, and builds a job again to count its bytes.
_latest_rings = deque[tuple[str, list[Task], tuple[Task, ...]]](maxlen=4)


def all_reduce_tasks(
    ranks: Sequence[Task], algorithm: str = "ring"
) -> tuple[Task, ...]:
    """Return the steps of every rank, then what it receives; of one rank, none.

    Their names begin with that of the rank's task, whose process and machine they
    share. Raises ValueError as `steps_of`.
    """
    parts = [_part_of(owner) for owner in ranks]
    # A copy, made at once: another thread may append while these are compared.
    for ring_algorithm, ring_parts, tasks in tuple(_latest_rings):
        if ring_algorithm == algorithm and ring_parts == parts:
            return tasks

    steps = len(steps_of(algorithm, len(parts)))
    built: list[Task] = []
    if steps:
        for rank, part in enumerate(parts):
            settings = {
                "of": part.name,
                "algorithm": algorithm,
                "ranks": len(parts),
                "rank": rank,
            }
            built += _tasks_of_rank(part, algorithm, settings, steps)
    tasks = tuple(built)
    _latest_rings.append((algorithm, parts, tasks))
    return tasks


def _part_of(owner: Task) -> Task:
    """Return what the tasks of a rank have in common, called as their owner."""
    return replace(
        owner,
        kind=ALL_REDUCE,
        # Its steps need nothing of their own, no slot either.
        demands={},
        process=owner.process_name,
        program=STEP,
        settings={},
        takes="",
        frees=None,
    )


def _tasks_of_rank(
    part: Task, algorithm: str, settings: Mapping[str, Any], steps: int
) -> Iterator[Task]:
    """Yield the steps of a rank, then what it receives."""
    # Not `replace`: it looks at every field of every step, a tenth of the time of
    # building 64 ranks.
    shared = {}
    for field in fields(part):
        shared[field.name] = getattr(part, field.name)
    for step in range(steps + 1):
        shared["name"] = f"{part.name}.{algorithm}{step}"
        shared["settings"] = {**settings, "step": step}
        yield Task(**shared)

    shared["program"] = RECEIVE
    for step in range(steps):
        shared["name"] = f"{part.name}.got{step}"
        shared["settings"] = {**settings, "step": step}
        yield Task(**shared)


def all_reduce_edges(
    names: Sequence[str],
    givers: Sequence[str],
    takers: Sequence[str],
    *,
    lag: int,
    carries: str,
    about: tuple[int, ...] = (),
    algorithm: str = "ring",
) -> Iterator[NamedEdge]:
    """Yield the edges: each rank's giver, its steps, its taker.

    ``names``: of the tasks that `all_reduce_tasks` was given; ``givers``, ``takers``:
    per rank the task whose sum is wanted, and the one that waits for it, ``lag``
    iterations later. For one rank, an edge between these where they differ. The
    ``place`` of a flow is (first chunk, the one after the last, ranks, *about).

    Raises ValueError as `steps_of`.
    """
    steps = steps_of(algorithm, len(names))
    if not steps:
        # One rank has its sum already: only the order is left.
        (giver,) = givers
        (taker,) = takers
        if giver != taker:
            yield NamedEdge(giver, taker, lag)
        return

    edges_of_ranks = _edges_of_ranks(tuple(names), carries, about, algorithm)
    for rank, name in enumerate(names):
        yield NamedEdge(givers[rank], f"{name}.{algorithm}0")
        yield from edges_of_ranks[rank]
        last_step = f"{name}.{algorithm}{len(steps)}"
        yield NamedEdge(last_step, takers[rank], lag)


@lru_cache(maxsize=4)  # as `_latest_rings`
def _edges_of_ranks(
    names: tuple[str, ...], carries: str, inputs: tuple[int, ...], algorithm: str
) -> tuple[tuple[NamedEdge, ...], ...]:
    """Return the edges of the steps of every rank."""
    edges = [
        tuple(_edges_of_rank(names, rank, carries, inputs, algorithm))
        for rank in range(len(names))
    ]
    return tuple(edges)


def _edges_of_rank(
    names: Sequence[str],
    rank: int,
    carries: str,
    inputs: tuple[int, ...],
    algorithm: str,
) -> Iterator[NamedEdge]:
    """Yield the edges from the steps of a rank, and from those who receive them."""
    name = names[rank]
    for step, transfers in enumerate(steps_of(algorithm, len(names))):
        sender = f"{name}.{algorithm}{step}"
        next_step = f"{algorithm}{step + 1}"
        peer, first, last = transfers[rank]
        receiver = f"{names[peer]}.got{step}"
        place = (first, last, len(names), *inputs)
        yield NamedEdge(sender, receiver, carries=carries, place=place)
        yield NamedEdge(receiver, f"{names[peer]}.{next_step}")
        # The next step waits until this one is sent as well: its receiver gives a
        # credit.
        yield NamedEdge(receiver, f"{name}.{next_step}", credit=True)
        yield NamedEdge(sender, f"{name}.{next_step}")


def all_reduce_edge_count(ranks: int, algorithm: str = "ring") -> int:
    """Return how many edges `all_reduce_edges` yields between so many ranks."""
    # Steps of the adding half; the other half has as many.
    adding = ranks - 1
    if algorithm != "ring":
        adding = ranks.bit_length() - 1
    if not adding:
        return 0
    # A step has four edges; a rank's giver and taker have one each.
    return ranks * (8 * adding + 2)


def part_elements(elements: int, place: tuple[int, ...]) -> int:
    """Return the elements of a flow of `all_reduce_edges`, by its ``place``."""
    first, last, ranks, *_ = place
    begin, end = part_bounds(elements, ranks, first, last)
    return end - begin


def elements_of_rank(elements: int, ranks: int, rank: int) -> int:
    """Return how many elements a rank sends in all steps of a ring."""
    sent = 0
    for transfers in steps_of("ring", ranks):
        _, first, last = transfers[rank]
        sent += part_elements(elements, (first, last, ranks))
    return sent


def elements_sent(source: Task, destination: Task, elements: int) -> int:
    """Return how many of ``elements`` an edge carries: from a step to a receiver."""
    sender = source.settings
    # Order and credits carry nothing.
    if source.program != STEP or destination.program != RECEIVE:
        return 0
    ranks = sender["ranks"]
    steps = steps_of(sender["algorithm"], ranks)
    transfers = steps[sender["step"]]
    _, first, last = transfers[sender["rank"]]
    return part_elements(elements, (first, last, ranks))
