"""Tasks of custom jobs: no work, only seeded bytes of a prescribed length.

``Task.settings["payload_bytes"]`` has a row per out-edge, in the order of
``Job.edges``: real bytes per iteration. Who receives them derives them, too, and
compares them as they come: a checksum would also pass wrong bytes that the sender has
made.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from emu.emulation.wire.process_spec import ProcessSpec
from emu.errors import NodeMisbehaved
from emu.prediction.core import lib, structure
from emu.problem.job import TIMED
from emu_nodes.program import (
    EdgeSpec,
    Payload,
    Settings,
    Shared,
    TaskProgram,
    TaskSpec,
)

Bytes: TypeAlias = NDArray[np.uint8]
#: Bytes of the random pool, from any of which a payload may begin.
POOL = 1 << 20
#: Bytes that are compared at once.
_BLOCK = 1 << 16


#: The longest so far, by its seed: all tasks of a job have one.
_pools: dict[int, Bytes] = {}
_making = threading.Lock()


def pool_of(seed: int, longest: int) -> Bytes:
    """Return the bytes of a seed, with a window of the longest payload everywhere.

    One array for all who ask with that seed, at once or one after the other: ten tasks
    that share a process of the system made up to ten of them.
    """
    with _making:
        pool = _pools.get(seed)
        if pool is None or len(pool) < longest + POOL:
            rng = np.random.default_rng([seed, 6])  # 6: no other draw of a seed has it
            period = rng.integers(256, size=POOL, dtype=np.uint8)
            pool = np.resize(period, longest + POOL)
            _pools.clear()
            _pools[seed] = pool
        return pool


def prepare_pools(specs: Iterable[ProcessSpec]) -> None:
    """Make the bytes that timed tasks of some processes send.

    Processes that are forked afterwards have the same memory: 20 of them took 4 ms each
    to make their own, and read more of it than a cache of the host holds.
    """
    for spec in specs:
        seed = seed_of(spec.job_settings)
        for task in spec.tasks:
            if task.program != TIMED:
                continue
            longest = _BLOCK
            for row in task.settings.get("payload_bytes", []):
                longest = max([longest, *row])
            pool_of(seed, longest)


def seed_of(job_settings: Settings) -> int:
    """Return the seed of the bytes of a job, which the core takes for 64 bits."""
    seed: int = job_settings.get("seed", 0)
    return seed % (1 << 64)


def rows_by_edge(brief: TaskSpec) -> dict[int, list[int]]:
    """Return the real bytes of every iteration that go over each out-edge.

    Raises ValueError when the settings lack the bytes of an out-edge.
    """
    rows = brief.settings.get("payload_bytes", [])
    if len(rows) != len(brief.outputs):
        raise ValueError(
            f"{brief.name} has {len(rows)} rows of payload_bytes in its settings for "
            f"{len(brief.outputs)} out-edges: state a row for each, or Task.program"
        )
    edges = (output.edge for output in brief.outputs)
    return dict(zip(edges, rows, strict=True))


def longest_row(rows: Mapping[int, Sequence[int]]) -> int:
    """Return the most bytes that any edge carries in an iteration."""
    largest = [max(row, default=0) for row in rows.values()]
    return max(largest, default=0)


class Comparison:
    """Compares the payloads of an in-edge with what its sender has to send.

    Programs call iteration 0 of frames ``first``.
    """

    def __init__(self, sender: EdgeSpec, seed: int, first: int) -> None:
        self._sender = sender
        self._first = first
        self._ring = pool_of(seed, _BLOCK)
        self.core = structure(
            "Expected",
            seed=seed,
            edge=sender.edge,
            first=first,
            ring=self._ring,
            period=POOL,
            block=_BLOCK,
            fault=-1,
        )
        """Its `Expected` of the core, which compares."""

    def finish(self, sizes: Mapping[str, int]) -> None:
        """Raise NodeMisbehaved when the body held other bytes than its own."""
        peer = self._sender.peer
        if sizes.keys() != {"bytes"}:
            raise NodeMisbehaved(f"{peer} sent {sorted(sizes)}, not bytes")
        begin = self.core.fault
        if begin >= 0:
            end = min(begin + _BLOCK, sizes["bytes"])
            raise NodeMisbehaved(
                f"iteration {self.core.iteration} of {peer} came with other bytes "
                f"than its own, from byte {begin} to {end} at most"
            )


class Timed(TaskProgram):
    """A task that takes its profiled time and sends bytes of (seed, edge, iteration).

    They are a window into one random pool, repeated up to the longest payload of the
    process; the window's start is a hash of the key. No payload is ever computed or
    copied, and none that comes is kept. Raises ValueError when the settings lack the
    bytes of every out-edge.
    """

    def __init__(self, brief: TaskSpec, process: Shared) -> None:
        super().__init__(brief, process)
        self.seed = seed_of(brief.job_settings)
        self.rows = rows_by_edge(brief)
        longest = max(_BLOCK, longest_row(self.rows))
        self.pool = pool_of(self.seed, longest)

    @override
    def sinks(self) -> dict[int, Comparison]:
        """Return comparisons, which raise NodeMisbehaved for other bytes than due."""
        brief = self._brief
        return {
            sender.edge: Comparison(sender, self.seed, brief.first)
            for sender in brief.inputs
        }

    @override
    def payload(self, output: EdgeSpec, iteration: int, made: Payload) -> Payload:
        start = lib.window_start(self.seed, output.edge, iteration, POOL)
        end = start + self.rows[output.edge][iteration]
        return {"bytes": self.pool[start:end]}
