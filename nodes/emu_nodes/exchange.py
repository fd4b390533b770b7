"""The steps of a collective of a custom job: real sums, and rows handed on.

Every rank brings bytes of (seed, collective, segment, rank, chunk, iteration). Sums are
of bytes, modulo 256: they are equal in any order. A sum that lacks a share, or has one
twice, is found by the rank that has it in the end, which derives the right bytes from
the seeds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.host.stream_key import stream_key
from emu.problem.workloads.collectives import (
    Send,
    adds_up,
    list_outcome,
    list_own,
    list_steps,
)
from emu_nodes.program import (
    Array,
    EdgeSpec,
    Inputs,
    Payload,
    Shared,
    TaskProgram,
    TaskSpec,
    tensor,
)
from emu_nodes.timed import POOL, Bytes, longest_row, pool_of, rows_by_edge

#: Chunks of a rank by their numbers; never written to: some are on their way.
Chunks = dict[int, Bytes]


def _sends_by_edge(
    edges: Iterable[EdgeSpec],
    ranks: Mapping[str, int],
    sends: Iterable[tuple[int, Send]],
) -> dict[int, Send]:
    """Return what goes over each edge from or to other ranks, in a step.

    ``ranks`` are those of tasks by name, ``sends`` come each with the other rank. Of
    several sends between two ranks, as in a ring of alltoall, the edges are in the
    order of the sends.
    """
    waiting = defaultdict[int, list[Send]](list)
    for rank, send in sends:
        waiting[rank].append(send)

    by_edge: dict[int, Send] = {}
    in_order = sorted(edges, key=lambda edge: edge.edge)
    for edge in in_order:
        if edge.peer in ranks:
            sends_with = waiting[ranks[edge.peer]]
            by_edge[edge.edge] = sends_with.pop(0)
    return by_edge


class Step(TaskProgram):
    """Takes in what came in the step before, and sends what this one sends."""

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        place = brief.settings["exchange"]
        self._seed: int = brief.job_settings.get("seed", 0)
        self._kind = place["kind"]
        self._ranks = place["ranks"]
        self._rank = place["rank"]
        self._step = place["step"]
        self._key: list[int] = place["key"]
        algorithm = place["algorithm"]
        self._steps = list_steps(self._kind, algorithm, self._ranks)

        # By iteration: one may begin before another ends, where `then` waits for it.
        name = f"chunks of {self._kind} {self._key} {self._rank}"
        self._chunks: dict[int, Chunks] = process.setdefault(name, {})

        arrivals = [
            (send.sender, send)
            for send in self._sends_of(self._step - 1)
            if send.receiver == self._rank
        ]
        departures = [
            (send.receiver, send)
            for send in self._sends_of(self._step)
            if send.sender == self._rank
        ]
        self._takes = _sends_by_edge(brief.inputs, place["from"], arrivals)
        self._sends = _sends_by_edge(brief.outputs, place["to"], departures)

        # Emulated bytes of a chunk: of all iterations, or of each.
        self._chunk: float | Sequence[float] = place["chunk"]
        self._byte_scale: float = brief.settings["byte_scale"]
        self._rows = rows_by_edge(brief)
        sizes = self._chunk if isinstance(self._chunk, Sequence) else [self._chunk]
        longest = max(map(self._real_bytes, sizes))
        longest = max(longest, longest_row(self._rows))
        self._pool = pool_of(self._seed, longest)

    def _sends_of(self, step: int) -> Sequence[Send]:
        """Return the sends of a step, none before the first and after the last."""
        if 0 <= step < len(self._steps):
            return self._steps[step]
        return ()

    def _real_bytes(self, size: float) -> int:
        """Return the real bytes of a chunk; rounding must not make it one too few."""
        return int(size * self._byte_scale + 1e-9)

    def _chunk_bytes(self, iteration: int) -> int:
        chunk = self._chunk
        size = chunk[iteration] if isinstance(chunk, Sequence) else chunk
        return self._real_bytes(size)

    def _brought(self, rank: int, chunk: int, iteration: int) -> Bytes:
        """Return the bytes that a rank brings, as a view."""
        key = stream_key(self._seed, *self._key, rank, chunk, iteration)
        start = int(key) % POOL
        end = start + self._chunk_bytes(iteration)
        return self._pool[start:end]

    @override
    def work(self, iteration: int, inputs: Inputs) -> Chunks:
        """Return the chunks that this rank has after the step before.

        Raises NodeMisbehaved when what came in is too short, or the outcome is wrong.
        """
        if self._step == 0:
            numbers = list_own(self._kind, self._rank, self._ranks)
            self._chunks[iteration] = {
                number: self._brought(self._rank, number, iteration)
                for number in numbers
            }

        chunks = self._chunks[iteration]
        size = self._chunk_bytes(iteration)
        for source in self._brief.inputs:
            send = self._takes.get(source.edge)
            if send is None:
                continue
            body = tensor(inputs[source.edge], "bytes", source)
            length = size * send.chunks
            if body.size < length:
                raise NodeMisbehaved(
                    f"{source.peer} sent {body.size} bytes, not the "
                    f"{length} of its chunks"
                )
            self._take_in(chunks, send, body[:length])

        if self._step == len(self._steps):  # the task after the last step
            del self._chunks[iteration]
            self._check(chunks, iteration)
        return chunks

    def _take_in(self, chunks: Chunks, send: Send, body: Array) -> None:
        count = len(self._steps)
        adds = adds_up(self._kind, self._step - 1, count)
        parts = body.reshape(send.chunks, -1)
        for number, part in enumerate(parts, start=send.first):
            # A copy either way: the body is in pooled memory, and chunks may be on
            # their way to other ranks.
            if adds:
                chunks[number] = chunks[number] + part
            else:
                chunks[number] = part.copy()

    def _check(self, chunks: Chunks, iteration: int) -> None:
        outcome = list_outcome(self._kind, self._rank, self._ranks)
        size = self._chunk_bytes(iteration)
        for number, ranks in outcome.items():
            total = np.zeros(size, np.uint8)  # its sums overflow, as those on the way
            for rank in ranks:
                total += self._brought(rank, number, iteration)

            chunk = chunks.get(number)
            if chunk is None or not np.array_equal(chunk, total):
                raise NodeMisbehaved(
                    f"rank {self._rank} of {self._brief.name} has a wrong chunk "
                    f"{number} after iteration {iteration}"
                )

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Chunks) -> Payload:
        """Return chunks, and bytes without meaning up to the stated volume, rounded."""
        parts: list[Bytes] = []
        send = self._sends.get(output.edge)
        if send is not None:
            numbers = range(send.first, send.last)
            parts = [made[number] for number in numbers]

        length = self._rows[output.edge][iteration]
        rest = length - sum(part.size for part in parts)
        if rest == 0 and len(parts) == 1:  # no need to copy it
            return {"bytes": parts[0]}
        parts.append(self._pool[:rest])
        return {"bytes": np.concatenate(parts)}
