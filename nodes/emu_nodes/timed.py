"""Tasks of custom jobs: no work, only seeded bytes of a prescribed length.

``Task.settings["payload_bytes"]`` has a row per out-edge, in the order of
``Job.edges``: real bytes per iteration. Who receives them derives them, too, and
compares: a checksum would vouch for whatever the sender has made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.errors import NodeMisbehaved
from emu.host.stream_key import stream_key
from emu.prediction.core import lib, pointer
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

Bytes: TypeAlias = NDArray[np.uint8]
#: Bytes of the random pool, from any of which a payload may begin.
POOL = 1 << 20
#: Bytes that are compared at once.
_BLOCK = 1 << 16


@lru_cache(maxsize=4)
def _pool(seed: int, longest: int) -> Bytes:
    """Return the bytes of a seed, with a window of the longest payload everywhere."""
    rng = np.random.default_rng([seed, 6])  # 6: no other draw of a seed has it
    pool = rng.integers(256, size=POOL, dtype=np.uint8)
    return np.resize(pool, longest + POOL)


def pool_of(process: Shared, seed: int, longest: int) -> Bytes:
    """Return the bytes of the tasks of a process, of which it keeps the longest."""
    pool: Bytes | None = process.get("timed bytes")
    if pool is None or len(pool) < longest + POOL:
        pool = _pool(seed, longest)
        process["timed bytes"] = pool
    return pool


def rows_by_edge(brief: TaskSpec) -> dict[int, list[int]]:
    """Return the real bytes of every iteration that go over each out-edge.

    Raises ValueError when the settings lack the bytes of an out-edge.
    """
    rows = brief.settings.get("payload_bytes", [])
    if len(rows) != len(brief.outputs):
        raise ValueError(
            f"{brief.name} has {len(rows)} rows of payload bytes "
            f"for {len(brief.outputs)} out-edges"
        )
    edges = (output.edge for output in brief.outputs)
    return dict(zip(edges, rows, strict=True))


def longest_row(rows: Mapping[int, Sequence[int]]) -> int:
    """Return the most bytes that any edge carries in an iteration."""
    return max((max(row, default=0) for row in rows.values()), default=0)


class Timed(TaskProgram):
    """A task that takes its profiled time and sends bytes of (seed, edge, iteration).

    They are a window into one random pool, repeated up to the longest payload of the
    process; the window's start is a hash of the key. No payload is ever computed or
    copied. Raises ValueError when the settings lack the bytes of every out-edge.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        self._seed: int = brief.job_settings.get("seed", 0)
        self._rows = rows_by_edge(brief)
        longest = max(_BLOCK, longest_row(self._rows))
        pool_of(process, self._seed, longest)

    @override
    def work(self, iteration: int, inputs: Inputs) -> Payload:
        """Raise NodeMisbehaved when an input holds other bytes than its own."""
        for sender in self._brief.inputs:
            if sender.edge in inputs:
                body = tensor(inputs[sender.edge], "bytes", sender)
                # An edge that reads the newest may bring any iteration.
                number = self._reads.get(sender.edge, iteration - sender.lag)
                self._compare(sender, number, body)
        return {}

    def _compare(self, sender: EdgeSpec, iteration: int, body: Array) -> None:
        # Other tasks of the process may have made it longer since this one was made.
        pool: Bytes = self._process["timed bytes"]
        key = stream_key(self._seed, sender.edge, iteration)
        octets = body.reshape(-1).view(np.uint8)
        start = int(key) % POOL
        equal = lib.count_equal(
            pointer(octets),
            octets.size,
            _BLOCK,
            pointer(pool),
            POOL,
            start,
        )
        if equal < octets.size:
            end = min(equal + _BLOCK, octets.size)
            raise NodeMisbehaved(
                f"iteration {iteration} of {sender.peer} came with other bytes "
                f"than its own, from byte {equal} to {end} at most"
            )

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Payload) -> Payload:
        pool: Bytes = self._process["timed bytes"]
        key = stream_key(self._seed, output.edge, iteration)
        start = int(key) % POOL
        end = start + self._rows[output.edge][iteration]
        return {"bytes": pool[start:end]}
