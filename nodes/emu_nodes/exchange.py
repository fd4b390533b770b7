"""The steps of a collective of a custom job: real sums, and rows handed on.

Every rank brings bytes of (seed, collective, segment, rank, chunk, iteration). Sums are
of bytes, modulo 256: equal in any order, and one that lacks a share, or has one twice,
is found by who has it in the end. That one derives what it is to have from the seeds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
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
    EdgeSpec,
    Inputs,
    Payload,
    Shared,
    TaskProgram,
    TaskSpec,
    tensor,
)
from emu_nodes.timed import POOL, pool_of

#: Chunks of a rank by their numbers; never written to: some are on their way.
Chunks = dict[int, NDArray[np.uint8]]


def _by_edge(
    edges: Sequence[EdgeSpec], ranks: dict[str, int], sends: list[tuple[int, Send]]
) -> dict[int, Send]:
    """Return what goes over each edge from or to other ranks, in a step.

    ``sends``: each with the other rank. Of several between two ranks, as in a ring of
    alltoall, the edges are in the order of the sends.
    """
    waiting = defaultdict[int, list[Send]](list)
    for rank, send in sends:
        waiting[rank].append(send)
    own = sorted((e for e in edges if e.peer in ranks), key=lambda e: e.edge)
    return {e.edge: waiting[ranks[e.peer]].pop(0) for e in own}


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
        self._steps = list_steps(self._kind, place["algorithm"], self._ranks)
        self._chunk: float | Sequence[float] = place["chunk"]
        self._byte_scale: float = brief.settings["byte_scale"]
        # By iteration: one may begin before another ends, where `then` waits for it.
        name = f"chunks of {self._kind} {self._key} {self._rank}"
        self._chunks: dict[int, Chunks] = process.setdefault(name, {})
        rows = brief.settings["payload_bytes"]
        edges = (out.edge for out in brief.outputs)
        self._rows: dict[int, list[int]] = dict(zip(edges, rows, strict=True))
        before = self._steps[self._step - 1] if self._step else ()
        after = self._steps[self._step] if self._step < len(self._steps) else ()
        came = [(s.sender, s) for s in before if s.receiver == self._rank]
        goes = [(s.receiver, s) for s in after if s.sender == self._rank]
        self._takes = _by_edge(brief.inputs, place["from"], came)
        self._sends = _by_edge(brief.outputs, place["to"], goes)
        sizes = self._chunk if isinstance(self._chunk, Sequence) else [self._chunk]
        longest = max(
            [*map(self._whole, sizes), *(max(row, default=0) for row in rows)]
        )
        self._pool = pool_of(process, self._seed, longest)

    def _whole(self, size: float) -> int:
        """Return the real bytes of a chunk; rounding must not make it one too few."""
        return int(size * self._byte_scale + 1e-9)

    def _size(self, iteration: int) -> int:
        chunk = self._chunk
        return self._whole(chunk[iteration] if isinstance(chunk, Sequence) else chunk)

    def _brought(self, rank: int, chunk: int, iteration: int) -> NDArray[np.uint8]:
        """Return the bytes that a rank brings, as a view."""
        key = stream_key(self._seed, *self._key, rank, chunk, iteration)
        start = int(key) % POOL
        return self._pool[start : start + self._size(iteration)]

    @override
    def work(self, iteration: int, inputs: Inputs) -> Chunks:
        """Return the chunks that this rank has after the step before.

        Raises NodeMisbehaved when what came in is too short, or the outcome is wrong.
        """
        if self._step == 0:
            own = list_own(self._kind, self._rank, self._ranks)
            chunks = {c: self._brought(self._rank, c, iteration) for c in own}
            self._chunks[iteration] = chunks
        chunks = self._chunks[iteration]
        size = self._size(iteration)
        for source in self._brief.inputs:
            if (send := self._takes.get(source.edge)) is not None:
                body = tensor(inputs[source.edge], "bytes", source)
                if body.size < size * send.chunks:
                    raise NodeMisbehaved(
                        f"{source.peer} sent {body.size} bytes, not the "
                        f"{size * send.chunks} of its chunks"
                    )
                self._take_in(chunks, send, body[: size * send.chunks])
        if self._step == len(self._steps):
            del self._chunks[iteration]
            self._check(chunks, iteration)
        return chunks

    def _take_in(self, chunks: Chunks, send: Send, body: NDArray[Any]) -> None:
        adds = adds_up(self._kind, self._step - 1, len(self._steps))
        parts = body.reshape(send.chunks, -1)
        for chunk, part in zip(range(send.first, send.last), parts, strict=True):
            chunks[chunk] = chunks[chunk] + part if adds else part.copy()

    def _check(self, chunks: Chunks, iteration: int) -> None:
        for chunk, ranks in list_outcome(self._kind, self._rank, self._ranks).items():
            total = np.zeros(self._size(iteration), np.uint8)
            for rank in ranks:
                total += self._brought(rank, chunk, iteration)
            if chunk not in chunks or not np.array_equal(chunks[chunk], total):
                raise NodeMisbehaved(
                    f"rank {self._rank} of {self._brief.name} has a wrong chunk "
                    f"{chunk} after iteration {iteration}"
                )

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Chunks) -> Payload:
        """Return chunks, and bytes without meaning up to the stated volume, rounded."""
        length = self._rows[output.edge][iteration]
        parts = list[NDArray[np.uint8]]()
        if (send := self._sends.get(output.edge)) is not None:
            parts = [made[chunk] for chunk in range(send.first, send.last)]
        if (rest := length - sum(part.size for part in parts)) or len(parts) != 1:
            return {"bytes": np.concatenate([*parts, self._pool[:rest]])}
        return {"bytes": parts[0]}
