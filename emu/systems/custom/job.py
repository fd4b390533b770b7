"""Custom jobs: any graph of timed tasks and flows."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
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
from emu.problem.workloads.collectives import ALGORITHMS, Send, list_steps
from emu.systems.custom import EXCHANGE

#: One value for all iterations, or one per iteration (more than needed is allowed).
PerIteration: TypeAlias = float | tuple[float, ...]

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


def _rows(values: Sequence[PerIteration], counts: Sequence[int]) -> NDArray[np.float64]:
    """Return a row per value, as long as the longest, 0 beyond its own count."""
    rows = np.zeros((len(values), max(counts, default=0)))
    for row, value, count in zip(rows, values, counts, strict=True):
        row[:count] = value[:count] if isinstance(value, tuple) else value
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
    gates = {task.name for task, _ in tasks if task.gate}
    sends = [f for f in flows if byte_scale and f.edge.destination not in gates]
    counts = [rounds[flow.edge.source] for flow in sends]
    volumes = _rows([flow.volume for flow in sends], counts) * (byte_scale or 0.0)
    real = np.rint(np.minimum(volumes, _MOST_BYTES)).astype(np.int64)
    payload = defaultdict[str, list[list[int]]](list)
    for flow, row in zip(sends, real.tolist(), strict=True):
        payload[flow.edge.source].append(row)
    built = [
        replace(
            task,
            settings=_to_send(task, payload[task.name], byte_scale),
            iterations=None if rounds[task.name] == most else rounds[task.name],
        )
        for task, _ in tasks
    ]
    # What no iteration would wait for is left out: it may be 300,000 edges of 42,000.
    window = window if window is None or window < most else None
    edges = [flow.edge for flow in flows]
    return build_named_job(built, edges, most, settings or {}, window=window)


def _to_send(
    task: Task, rows: list[list[int]], byte_scale: float | None
) -> dict[str, Any]:
    """Return the settings of a task's program; empty where nothing is emulated."""
    if not byte_scale:
        return {}
    scale = {"byte_scale": byte_scale} if task.settings else {}
    return {**task.settings, **scale, "payload_bytes": rows}


def custom_realization(
    job: Job, tasks: Sequence[CustomTask], flows: Sequence[CustomFlow]
) -> Realization:
    """Return times and volumes for ``job`` as `custom_job` built it; credits carry 0.

    Raises ValueError when there are fewer values than iterations, or a value is
    negative or NaN.
    """
    times = np.zeros((len(tasks), job.iterations))
    volumes = np.zeros((len(job.edges), job.iterations))
    sources = [job.rounds[edge.source] for edge in job.edges[: len(flows)]]
    for array, rows in (
        (times, _rows([task.time for task in tasks], job.rounds)),
        (volumes, _rows([flow.volume for flow in flows], sources)),
    ):
        array[: rows.shape[0], : rows.shape[1]] = rows
    return Realization(times, volumes)


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
        return self.algorithm or ALGORITHMS[kind][0]

    def steps(self, kind: str) -> tuple[tuple[Send, ...], ...]:
        """Return the sends of every step, ValueError as of `list_steps`."""
        return list_steps(kind, self.way(kind), len(self.among))


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
        kinds = [key for key in type(self).model_fields if getattr(self, key)]
        if len(kinds) != 1:
            some = ", ".join(type(self).model_fields)
            raise ValueError(
                f"found {' and '.join(kinds) or 'none'}, write one: {some}"
            )
        return self

    @property
    def kind(self) -> str:
        """Name of the one that is stated."""
        return next(key for key in type(self).model_fields if getattr(self, key))

    @property
    def exchange(self) -> ExchangeSection:
        """The stated one, of those that go by steps."""
        one: ExchangeSection = getattr(self, self.kind)
        return one

    @property
    def edges(self) -> int:
        """Number of edges that it adds between its ends, 0 of one that cannot be."""
        if self.shuffle is not None:
            return len(self.shuffle.sources) * len(self.shuffle.destinations)
        one = self.exchange
        with contextlib.suppress(ValueError):
            steps = one.steps(self.kind)
            return one.segments * sum(len(step) + len(one.among) for step in steps)
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
        if (shuffle := collective.shuffle) is not None:
            for to, volume in zip(shuffle.destinations, shuffle.volume, strict=True):
                for source in shuffle.sources:
                    edge = NamedEdge(source, to, coflow=shuffle.coflow or "")
                    all_flows.append(CustomFlow(edge, volume))
            continue
        kind = collective.kind
        one = collective.exchange
        for segment in range(one.segments):
            for name in one.among:
                parts = _steps_of_rank(one, kind, by_name[name], (number, segment))
                all_tasks += [CustomTask(part, 0.0) for part in parts]
            all_flows += _segment(one, kind, f"{kind}{number}.{segment}")
    return all_tasks, all_flows


def _steps_of_rank(
    one: ExchangeSection, kind: str, task: Task, key: tuple[int, int]
) -> Iterator[Task]:
    """Yield the tasks of a rank in one segment: a step each, and one for the outcome.

    ``key``: numbers of the collective and of the segment.
    """
    steps = one.steps(kind)
    names = one.among
    label = f"{kind}{key[0]}.{key[1]}"
    rank = names.index(task.name)
    place = {"kind": kind, "algorithm": one.way(kind), "rank": rank, "key": [*key]}
    place |= {"ranks": len(names), "chunk": _chunk(one, kind)}
    for step in range(len(steps) + 1):
        before = steps[step - 1] if step else ()
        after = (*steps[step : step + 1],)
        senders = {s.sender for s in before if s.receiver == rank}
        receivers = {s.receiver for some in after for s in some if s.sender == rank}
        peers = {
            "from": {f"{names[r]}.{label}.{step - 1}": r for r in sorted(senders)},
            "to": {f"{names[r]}.{label}.{step + 1}": r for r in sorted(receivers)},
        }
        yield replace(
            task,
            name=f"{task.name}.{label}.{step}",
            kind=ALL_REDUCE if kind == "allreduce" else kind,
            demands={},
            process=task.process_name,
            takes="",
            frees=None,
            program=EXCHANGE,
            settings={"exchange": {**place, **peers, "step": step}},
        )


def _chunk(one: ExchangeSection, kind: str) -> PerIteration:
    """Return the bytes of a chunk: of a rank's share, of all but an allgather."""
    pieces = one.segments * (1 if kind == "allgather" else len(one.among))
    if isinstance(one.volume, tuple):
        return tuple(size / pieces for size in one.volume)
    return one.volume / pieces


def _segment(one: ExchangeSection, kind: str, label: str) -> Iterator[CustomFlow]:
    """Yield the flows of one segment: from every task, through the steps, to its end.

    A step follows the one before on its rank and what came from others. Its flows
    follow those before by the channel: "received and sent" (specs, 2f). Segments follow
    one another, so that one is on its way while another is added up: two in gloo, more
    in NCCL.
    """
    ranks = len(one.among)
    steps = one.steps(kind)
    lag = one.lag if one.lag is not None else int(not one.then)
    # A chunk is what a rank brings to allgather, of the others a part of that.
    pieces = one.segments * (1 if kind == "allgather" else ranks)
    # A rank sends to one after the other, but where all goes at once.
    apart = one.way(kind) in ("direct", "ring")
    for rank, name in enumerate(one.among):
        yield CustomFlow(NamedEdge(name, f"{name}.{label}.0"), 0.0)
        for step, sends in enumerate(steps):
            here = f"{name}.{label}.{step}"
            following = f"{label}.{step + 1}"
            yield CustomFlow(NamedEdge(here, f"{name}.{following}"), 0.0)
            for send in (send for send in sends if send.sender == rank):
                to = one.among[send.receiver]
                channel = f"{name}->{to if apart else ''}"
                edge = NamedEdge(here, f"{to}.{following}", channel=channel)
                rows = one.volume if isinstance(one.volume, tuple) else (one.volume,)
                shares = tuple(send.chunks * size / pieces for size in rows)
                whole = isinstance(one.volume, tuple)
                yield CustomFlow(edge, shares if whole else shares[0])
        last = f"{name}.{label}.{len(steps)}"
        then = one.then[rank] if one.then else name
        yield CustomFlow(NamedEdge(last, then, lag), 0.0)
