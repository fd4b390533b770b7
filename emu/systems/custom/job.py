"""Custom jobs: any graph of timed tasks and flows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.problem import Edge, Job, Realization, Task
from emu.problem.workloads.all_reduce import ALL_REDUCE, credit_edges, phase_of
from emu.problem.workloads.collectives import Send, list_steps

#: One value for all iterations, or one per iteration (more than needed is allowed).
PerIteration: TypeAlias = float | tuple[float, ...]


#: Of a payload: what fits a whole number. No host could send as much.
_MOST_BYTES = 2.0**62


@dataclass(frozen=True)
class CustomTask:
    """One task of a custom job; ``time`` in seconds, ``iterations`` of its own.

    ``takes``, ``frees``, ``process`` and ``gate`` as in `Task`.
    """

    name: str
    time: PerIteration
    kind: str = "task"
    demands: Mapping[str, float] = field(default_factory=dict)
    pinned: str | None = None
    iterations: int | None = None
    takes: str = ""
    frees: str | None = None
    process: str = ""
    gate: bool = False


@dataclass(frozen=True)
class CustomFlow:
    """One edge of a custom job by task names; ``volume`` in bytes per iteration.

    ``channel``, ``latest`` and ``coflow`` as in `Edge`.
    """

    source: str
    destination: str
    volume: PerIteration
    lag: int = 0
    channel: str = ""
    latest: bool = False
    coflow: str = ""


def _edge(flow: CustomFlow, positions: Mapping[str, int]) -> Edge:
    return Edge(
        positions[flow.source],
        positions[flow.destination],
        flow.lag,
        channel=flow.channel,
        latest=flow.latest,
        coflow=flow.coflow,
    )


def _rows(values: Sequence[PerIteration], counts: Sequence[int]) -> NDArray[np.float64]:
    """Return a row per value, as long as the longest, 0 beyond its own count."""
    rows = np.zeros((len(values), max(counts, default=0)))
    for row, value, count in zip(rows, values, counts, strict=True):
        if isinstance(value, tuple) and len(value) < count:
            raise ValueError(f"{len(value)} values for {count} iterations")
        row[:count] = value[:count] if isinstance(value, tuple) else value
    return rows


def _check_ends(
    flows: Sequence[CustomFlow], names: Collection[str], gates: Collection[str]
) -> None:
    for flow in flows:
        for name in (flow.source, flow.destination):
            if name not in names:
                raise ValueError(f"a flow names task {name}, which is not there")
            if name in gates and np.any(flow.volume):
                raise ValueError(
                    f"{flow.source}->{flow.destination} brings bytes to or from the "
                    f"gate {name}; it may carry order alone, 0 bytes"
                )
            if name in gates and flow.latest:
                raise ValueError(
                    f"{flow.source}->{flow.destination} reads the latest, but the gate "
                    f"{name} runs no process; only tasks that have one send and read"
                )


def _payload_bytes(
    flows: Sequence[CustomFlow], rounds: Mapping[str, int], byte_scale: float
) -> dict[str, list[list[int]]]:
    """Return the real bytes that every task sends, a row per flow."""
    counts = [rounds[flow.source] for flow in flows]
    volumes = _rows([flow.volume for flow in flows], counts) * byte_scale
    real = np.rint(np.minimum(volumes, _MOST_BYTES)).astype(np.int64)
    payload = defaultdict[str, list[list[int]]](list)
    for flow, row in zip(flows, real.tolist(), strict=True):
        payload[flow.source].append(row)
    return payload


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

    Raises ValueError as `Job` and `credit_edges`, when a flow names an unknown task or
    has bytes for a gate or reads the latest of or into one, or when there are fewer
    values than iterations.

    Parameters
    ----------
    iterations
        Of every task that states none of its own.
    window
        Credit window K, None for unlimited.
    byte_scale
        Real bytes per emulated byte. Given for an emulation: every task then has
        in its settings the ``payload_bytes`` to send, one row per out-edge in the order
        of ``Job.edges``, one whole number of real bytes per iteration.
    """
    positions = {task.name: position for position, task in enumerate(tasks)}
    gates = {task.name for task in tasks if task.gate}
    _check_ends(flows, positions, gates)
    counts = ((t.name, t.iterations) for t in tasks)
    rounds = {name: iterations if n is None else n for name, n in counts}
    most = max(rounds.values(), default=iterations)
    sending = [f for f in flows if byte_scale and f.destination not in gates]
    payload = _payload_bytes(sending, rounds, byte_scale or 0.0)
    built = tuple(
        Task(
            name=task.name,
            kind=task.kind,
            phase=phase_of(task.kind),
            demands=task.demands,
            pinned=task.pinned,
            settings={"payload_bytes": payload[task.name]} if byte_scale else {},
            iterations=None if rounds[task.name] == most else rounds[task.name],
            takes=task.takes,
            frees=task.frees,
            process=task.process,
            gate=task.gate,
        )
        for task in tasks
    )
    edges = tuple(_edge(flow, positions) for flow in flows)
    # What no iteration would wait for is left out: it may be 300,000 edges of 42,000.
    window = window if window is None or window < most else None
    edges += credit_edges(built, edges, window)
    return Job(built, edges, most, settings=settings or {})


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


@dataclass(frozen=True)
class Collective:
    """A collective among tasks, by the steps of `list_steps`.

    What a step sends is cut into segments that follow one another, so that one is on
    its way while another is added up: two in gloo, more in NCCL. A rank has one
    connection to another, a channel.
    """

    kind: str
    """``allreduce``, ..., of `ALGORITHMS`."""
    algorithm: str
    among: tuple[str, ...]
    """The tasks, two or more, in the order of their ranks."""
    volume: PerIteration
    """Bytes of what each brings; of broadcast, the first."""
    then: tuple[str, ...] = ()
    """Per task, the one that waits for the outcome; empty for the tasks themselves."""
    lag: int = 1
    """Iterations from the outcome to the task that waits, 1 or more for themselves."""
    segments: int = 1
    """Pieces that a chunk is sent in."""

    @property
    def steps(self) -> tuple[tuple[Send, ...], ...]:
        """Sends of every step."""
        return list_steps(self.kind, self.algorithm, len(self.among))

    @property
    def edges(self) -> int:
        """Number of edges that it adds, but for those from its tasks and to them."""
        sends = sum(map(len, self.steps)) + len(self.steps) * len(self.among)
        return self.segments * sends


@dataclass(frozen=True)
class Shuffle:
    """Flows from each of some tasks to each of others: one coflow.

    ``volumes`` are bytes from each, per receiver.
    """

    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    volumes: tuple[float, ...]
    coflow: str = ""

    @property
    def edges(self) -> int:
        """Number of flows."""
        return len(self.sources) * len(self.destinations)


def with_collectives(
    tasks: Sequence[CustomTask],
    flows: Sequence[CustomFlow],
    collectives: Sequence[Collective | Shuffle],
) -> tuple[list[CustomTask], list[CustomFlow]]:
    """Return tasks and flows with those of the collectives behind them.

    What rank ``w0`` sends in step 3 of segment 1 of the first one comes from the task
    ``w0.allreduce0.1.3``, in the process of ``w0``; of the steps none takes time.

    Raises ValueError when a collective names a task that is not there.
    """
    all_tasks, all_flows = [*tasks], [*flows]
    tasks_by_name = {task.name: task for task in tasks}
    for number, one in enumerate(collectives):
        if isinstance(one, Shuffle):
            all_flows += [
                CustomFlow(source, destination, volume, coflow=one.coflow)
                for destination, volume in zip(
                    one.destinations, one.volumes, strict=True
                )
                for source in one.sources
            ]
            continue
        for name in (*one.among, *one.then):
            if name not in tasks_by_name:
                raise ValueError(f"{one.kind} names task {name}, which is not there")
        ranks = [tasks_by_name[name] for name in one.among]
        for segment in range(one.segments):
            label = f"{one.kind}{number}.{segment}"
            all_tasks += [
                CustomTask(
                    f"{rank.name}.{label}.{step}",
                    0.0,
                    ALL_REDUCE if one.kind == "allreduce" else one.kind,
                    pinned=rank.pinned,
                    iterations=rank.iterations,
                    process=rank.process or rank.name,
                )
                for rank in ranks
                for step in range(len(one.steps) + 1)
            ]
            all_flows += _segment(one, label)
    return all_tasks, all_flows


def _segment(one: Collective, label: str) -> Iterator[CustomFlow]:
    """Yield the flows of one segment: from every task, through the steps, to its end.

    A step follows the one before on its rank and what came from others. Its flows
    follow those before by the channel: "received and sent" (specs, 2f).
    """
    ranks = len(one.among)
    # A chunk is what a rank brings to allgather, of the others a part of that.
    pieces = one.segments * (1 if one.kind == "allgather" else ranks)
    rows = one.volume if isinstance(one.volume, tuple) else (one.volume,)
    volumes = {
        chunks: tuple(chunks * bytes_ / pieces for bytes_ in rows)
        for chunks in {send.chunks for step in one.steps for send in step}
    }
    for rank, name in enumerate(one.among):
        yield CustomFlow(name, f"{name}.{label}.0", 0.0)
        for step, sends in enumerate(one.steps):
            here, following = f"{name}.{label}.{step}", f"{label}.{step + 1}"
            yield CustomFlow(here, f"{name}.{following}", 0.0)
            for send in (send for send in sends if send.sender == rank):
                to, row = one.among[send.receiver], volumes[send.chunks]
                volume = row if isinstance(one.volume, tuple) else row[0]
                # A rank sends to one after the other, but where all goes at once.
                apart = one.algorithm in ("direct", "ring")
                way = f"{name}->{to}" if apart else f"{name}->"
                yield CustomFlow(here, f"{to}.{following}", volume, channel=way)
        last = f"{name}.{label}.{len(one.steps)}"
        yield CustomFlow(last, one.then[rank] if one.then else name, 0.0, one.lag)
