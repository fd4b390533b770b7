"""Custom jobs: any graph of timed tasks and flows."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from emu.problem import Job, Realization, Task
from emu.problem.fields.quantities import (
    Few,
    Index,
    Name,
    Size,
    SizePerIteration,
    TaskName,
)
from emu.problem.fields.section import Section
from emu.problem.workloads.all_reduce import ALL_REDUCE, NamedEdge, build_named_job
from emu.problem.workloads.collectives import ALGORITHMS, Steps, list_steps
from emu.systems import Floats, Settings
from emu.systems.custom import EXCHANGE

#: One value for all iterations, or one per iteration (more than needed is allowed).
PerIteration: TypeAlias = float | tuple[float, ...]
#: Whole bytes that a task sends: a row per out-edge, one number per iteration.
Payload: TypeAlias = list[list[int]]

#: Of a payload: what fits a whole number. No host could send as much.
_MOST_BYTES = 2.0**62


class CustomTask(NamedTuple):
    """One task of a custom job, and its seconds."""

    task: Task
    time: PerIteration


class CustomFlow(NamedTuple):
    """One edge of a custom job, and its bytes."""

    edge: NamedEdge
    volume: PerIteration


def _rows(values: Sequence[PerIteration], counts: Sequence[int]) -> Floats:
    """Return a row per value, as long as the longest, 0 beyond its own count."""
    longest = max(counts, default=0)
    shape = (len(values), longest)
    rows = np.zeros(shape)
    for row, value, count in zip(rows, values, counts, strict=True):
        if isinstance(value, tuple):
            # More values than iterations are fine: a shorter run needs no other file.
            row[:count] = value[:count]
        else:
            row[:count] = value
    return rows


def custom_job(
    tasks: Sequence[CustomTask],
    flows: Sequence[CustomFlow],
    iterations: int,
    *,
    window: int | None = None,
    byte_scale: float | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Job:
    """Return the job: edges in the order of the flows, then the credit edges.

    ``iterations``: of tasks that state none of their own; ``window``: K, None for
    unlimited; ``byte_scale``: real bytes per emulated byte, for an emulation: every
    task then has in its settings the ``payload_bytes`` to send, one row per out-edge in
    the order of ``Job.edges``, one whole number of real bytes per iteration.

    Raises ValueError as `build_named_job`, or for fewer values than iterations.
    """
    rounds = {task.name: task.iterations or iterations for task, _ in tasks}
    most = max(rounds.values())
    payloads: Mapping[str, Payload] = {}
    if byte_scale:
        payloads = _payloads(tasks, flows, rounds, byte_scale)

    job_tasks = []
    for task, _ in tasks:
        program_settings: Settings = {}
        if byte_scale:
            program_settings = dict(task.settings)
            # Steps of collectives alone have settings, and scale their own bytes.
            if task.settings:
                program_settings["byte_scale"] = byte_scale
            program_settings["payload_bytes"] = payloads.get(task.name, [])
        # None where it is the job's own number, as of a task that states nothing.
        count: int | None = rounds[task.name]
        if count == most:
            count = None
        job_task = replace(
            task,
            settings=program_settings,
            iterations=count,
        )
        job_tasks.append(job_task)

    # What no iteration would wait for is left out: it may be 300,000 edges of 42,000.
    if window is not None and window >= most:
        window = None
    return build_named_job(
        tasks=job_tasks,
        edges=[flow.edge for flow in flows],
        iterations=most,
        settings=settings or {},
        window=window,
    )


def _payloads(
    tasks: Sequence[CustomTask],
    flows: Sequence[CustomFlow],
    rounds: Mapping[str, int],
    byte_scale: float,
) -> dict[str, Payload]:
    """Return the real bytes to send by task: a row per out-edge, one per iteration."""
    # Nothing is sent to a gate: the scheduler knows when its tasks end.
    gates = {task.name for task, _ in tasks if task.gate}
    sends = [flow for flow in flows if flow.edge.destination not in gates]
    counts = [rounds[flow.edge.source] for flow in sends]
    volumes = [flow.volume for flow in sends]
    emulated_bytes = _rows(volumes, counts)
    real_bytes = emulated_bytes * byte_scale
    # What is beyond an int64 would turn negative without a word.
    real_bytes = np.minimum(real_bytes, _MOST_BYTES)
    whole_bytes = np.rint(real_bytes).astype(np.int64)

    payloads = defaultdict[str, Payload](list)
    for flow, row in zip(sends, whole_bytes.tolist(), strict=True):
        rows = payloads[flow.edge.source]
        rows.append(row)
    return payloads


def custom_realization(
    job: Job,
    tasks: Sequence[CustomTask],
    flows: Sequence[CustomFlow],
) -> Realization:
    """Return times and volumes for ``job`` as `custom_job` built it; credits carry 0.

    Raises ValueError when there are fewer values than iterations, or a value is
    negative or NaN.
    """
    times = _rows([task.time for task in tasks], job.rounds)
    _, iterations = times.shape
    all_times = np.zeros((len(tasks), job.iterations))
    all_times[:, :iterations] = times

    # Credit edges stand behind the flows, and carry nothing.
    count = len(flows)
    flow_edges = job.edges[:count]
    counts = [job.rounds[edge.source] for edge in flow_edges]
    volumes = _rows([flow.volume for flow in flows], counts)
    _, iterations = volumes.shape
    all_volumes = np.zeros((len(job.edges), job.iterations))
    all_volumes[:count, :iterations] = volumes
    return Realization(times=all_times, volumes=all_volumes)


class ExchangeSection(Section):
    """A collective of some tasks, as gloo and NCCL run it."""

    among: tuple[TaskName, ...] = Field(examples=[["w0", "w1", "w2"]])
    """Tasks, two or more, in the order of the ranks: round a ring each sends to the
    next (gloo: to the one before), broadcast is from the first."""
    volume: SizePerIteration
    """Bytes of what each of them brings, one or one per iteration."""
    algorithm: Name | None = None
    """``ring``, ``halving_doubling`` (2, 4, 8, ... tasks), ``direct`` or ``tree``;
    default is ``ring``, ``direct`` for alltoall, ``tree`` for broadcast."""
    then: tuple[TaskName, ...] = ()
    """Per task, the one that waits for the outcome; default is the task itself, in its
    next iteration."""
    lag: Index | None = None
    """Iterations from the outcome to the task that waits; default is 1 without
    ``then``, 0 with it."""
    segments: Few = 1
    """Pieces that what a step sends is cut into, so that they overlap."""

    def way(self, kind: str) -> str:
        """Return the algorithm of a collective of that kind."""
        default, *_ = ALGORITHMS[kind]
        return self.algorithm or default

    def steps(self, kind: str) -> Steps:
        """Return the sends of every step, ValueError as of `list_steps`."""
        algorithm = self.way(kind)
        ranks = len(self.among)
        return list_steps(kind, algorithm, ranks)

    def share(self, volume: float, kind: str, chunks: int = 1) -> float:
        """Return the bytes of chunks of a segment: all but allgather cut a rank's."""
        parts = 1
        if kind != "allgather":
            parts = len(self.among)
        pieces = self.segments * parts
        return chunks * volume / pieces

    def shares(self, kind: str, chunks: int = 1) -> PerIteration:
        """Return `share` of what each rank brings."""
        if not isinstance(self.volume, tuple):
            return self.share(self.volume, kind, chunks)
        return tuple(self.share(volume, kind, chunks) for volume in self.volume)


class AllReduceSection(ExchangeSection):
    """An all-reduce."""

    segments: Few = 2
    """As of others; 2 in gloo, where they are not longer than it likes (1 MB)."""


class ShuffleSection(Section):
    """Flows from each of some tasks to each of others."""

    sources: tuple[TaskName, ...] = Field(alias="from", min_length=1)
    """Tasks that send."""
    destinations: tuple[TaskName, ...] = Field(alias="to", min_length=1)
    """Tasks that wait for what all of them send."""
    volume: tuple[Size, ...] = Field(examples=[["1 MB", "3 MB"]])
    """Bytes that each one sends, one per task of ``to``."""
    coflow: TaskName | None = None
    """As of flows."""


class CollectiveSection(Section):
    """A collective: tasks and flows of its own, in the processes of its tasks."""

    allreduce: AllReduceSection | None = None
    """Everybody has the sum of what all bring."""
    allgather: ExchangeSection | None = None
    """Everybody has what all bring."""
    reduce_scatter: ExchangeSection | None = None
    """Everybody has an equal part of the sum of what all bring."""
    alltoall: ExchangeSection | None = None
    """Everybody has an equal part of what each brings."""
    broadcast: ExchangeSection | None = None
    """Everybody has what the first brings."""
    shuffle: ShuffleSection | None = None
    """Flows from all of some tasks to all of others."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        kinds = self._list_kinds
        if len(kinds) != 1:
            names = " and ".join(kinds) or "none"
            choices = ", ".join(type(self).model_fields)
            raise ValueError(f"found {names}, write one: {choices}")
        return self

    @property
    def _list_kinds(self) -> list[str]:
        keys = type(self).model_fields
        return [key for key in keys if getattr(self, key)]

    @property
    def kind(self) -> str:
        """Name of the one that is stated."""
        return self._list_kinds[0]

    @property
    def exchange(self) -> ExchangeSection:
        """The stated one, of those that go by steps."""
        exchange: ExchangeSection = getattr(self, self.kind)
        return exchange

    @property
    def edges(self) -> int:
        """Number of edges that it adds between its ends, 0 of one that cannot be."""
        shuffle = self.shuffle
        if shuffle is not None:
            senders = len(shuffle.sources)
            return senders * len(shuffle.destinations)
        exchange = self.exchange
        ranks = len(exchange.among)
        # An algorithm that so many ranks cannot run is refused by `problems`.
        with contextlib.suppress(ValueError):
            steps = exchange.steps(self.kind)
            edges = sum(len(step) + ranks for step in steps)
            return exchange.segments * edges
        return 0


def with_collectives(
    tasks: Sequence[CustomTask],
    flows: Sequence[CustomFlow],
    collectives: Sequence[CollectiveSection],
) -> tuple[list[CustomTask], list[CustomFlow]]:
    """Return tasks and flows with those of the collectives behind them.

    What rank ``w0`` sends in step 3 of segment 1 of the first one comes from the task
    ``w0.allreduce0.1.3``, in the process of ``w0``; of the steps none takes time.
    """
    all_tasks = [*tasks]
    all_flows = [*flows]
    by_name = {task.name: task for task, _ in tasks}
    for number, collective in enumerate(collectives):
        if collective.shuffle is not None:
            all_flows += _shuffle_flows(collective.shuffle)
            continue

        kind = collective.kind
        exchange = collective.exchange
        for segment in range(exchange.segments):
            for name in exchange.among:
                task = by_name[name]
                steps = _rank_tasks(exchange, kind, task, (number, segment))
                all_tasks += [CustomTask(task=step, time=0.0) for step in steps]
            label = f"{kind}{number}.{segment}"
            all_flows += _segment_flows(exchange, kind, label)
    return all_tasks, all_flows


def _shuffle_flows(shuffle: ShuffleSection) -> Iterator[CustomFlow]:
    coflow = shuffle.coflow or ""
    pairs = zip(shuffle.destinations, shuffle.volume, strict=True)
    for destination, volume in pairs:
        for source in shuffle.sources:
            edge = NamedEdge(source, destination, coflow=coflow)
            yield CustomFlow(edge, volume)


def _rank_tasks(
    exchange: ExchangeSection,
    kind: str,
    task: Task,
    key: tuple[int, int],
) -> Iterator[Task]:
    """Yield the tasks of a rank in one segment: a step each, and one for the outcome.

    ``key``: numbers of the collective and of the segment.
    """
    steps = exchange.steps(kind)
    names = exchange.among
    rank = names.index(task.name)
    collective, segment = key
    label = f"{kind}{collective}.{segment}"

    last = len(steps)
    for step in range(last + 1):
        # Step s takes in what s - 1 sent; one behind the last has the outcome.
        arrivals = steps[step - 1] if step else ()
        sends = steps[step] if step < last else ()
        senders = {send.sender for send in arrivals if send.receiver == rank}
        receivers = {send.receiver for send in sends if send.sender == rank}
        step_before = f"{label}.{step - 1}"
        next_step = f"{label}.{step + 1}"

        place = {
            "kind": kind,
            "algorithm": exchange.way(kind),
            "rank": rank,
            "key": [*key],
            "ranks": len(names),
            "chunk": exchange.shares(kind),
            "from": {f"{names[peer]}.{step_before}": peer for peer in sorted(senders)},
            "to": {f"{names[peer]}.{next_step}": peer for peer in sorted(receivers)},
            "step": step,
        }
        yield replace(
            task,
            name=f"{task.name}.{label}.{step}",
            kind=ALL_REDUCE if kind == "allreduce" else kind,
            # The rank's own task demands all that the process needs.
            demands={},
            process=task.process_name,
            # A step only sends and receives: it holds no slot of its rank's work.
            takes="",
            frees=None,
            program=EXCHANGE,
            settings={"exchange": place},
        )


def _segment_flows(
    exchange: ExchangeSection,
    kind: str,
    label: str,
) -> Iterator[CustomFlow]:
    """Yield the flows of one segment: from every task, through the steps, to its end.

    A step follows the one before on its rank and what came from others. Its flows
    follow those before by the channel: "received and sent" (specs, 2f). Segments follow
    one another, so that one is on its way while another is added up: two in gloo, more
    in NCCL.
    """
    steps = exchange.steps(kind)
    readers = exchange.then or exchange.among
    lag = exchange.lag
    if lag is None:
        # A task that waits for its own outcome would wait for itself without a lag.
        lag = 0 if exchange.then else 1
    # A rank sends to one after the other, but where all goes at once.
    is_direct = exchange.way(kind) in ("direct", "ring")
    for rank, name in enumerate(exchange.among):
        # What stays on a rank carries no bytes: one process, one memory.
        edge = NamedEdge(name, f"{name}.{label}.0")
        yield CustomFlow(edge, 0.0)
        for step, sends in enumerate(steps):
            source = f"{name}.{label}.{step}"
            following = f"{label}.{step + 1}"
            edge = NamedEdge(source, f"{name}.{following}")
            yield CustomFlow(edge, 0.0)
            for send in sends:
                if send.sender != rank:
                    continue
                receiver = exchange.among[send.receiver]
                channel = f"{name}->"
                if is_direct:
                    channel += receiver
                edge = NamedEdge(source, f"{receiver}.{following}", channel=channel)
                volume = exchange.shares(kind, send.chunks)
                yield CustomFlow(edge, volume)

        last = f"{name}.{label}.{len(steps)}"
        edge = NamedEdge(last, readers[rank], lag)
        yield CustomFlow(edge, 0.0)
