"""The P3 job (Gandhi, Iyer, OSDI 2021): push the structure, pull partial activations.

Machines form groups that hold every column of the features once between them; member p
of a group holds block p, and the rows of the first layer's weights that belong to it.
Per machine m samplers, each a process, and a process with four phases: ``Mf0``, the
linear part of layer 1 on its columns for every batch of its group; ``Df0``, the rest of
the forward pass on its own batch; ``Db0``, its backward pass; ``Mb0``, the gradient of
its rows for the group's batches. Columns in memory of the host are collected by a task
of a core, ``g0``, before ``Mf0``; those in memory of the device by ``Mf0`` itself. The
upper parameters are summed round the ring ``w0.ring0``, ...; with several groups the
rows of layer 1 are, too (``v0.ring0``, ...), over those who hold them.

Where the structure is spread over the machines, samplers ask the owners of vertices
hop by hop (DistDGL): ``s0.hop1``, ``g0.hop1``, ... run once per mini-batch.

Iterations are cycles of the pipeline: in one cycle the phases are at different
mini-batches, and phases of batches that do not exist take no time and send nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emu.problem.workloads.model_shapes import shard_sizes
from emu.systems.dgtp import job as dgtp

#: Task name without its rank -> kind, in the order of one mini-batch.
PHASES = {
    "Mf": "model_forward",
    "Df": "data_forward",
    "Db": "data_backward",
    "Mb": "model_backward",
}

#: Place of the columns -> name, without its rank, of the task that collects them.
ENTRIES = {"device": "Mf", "host": "g"}

#: What ``nodes`` runs for each kind; ``emu`` never imports it.
PROGRAMS = {
    "graph_store_hop": dgtp.PROGRAMS["graph_store_hop"],
    "sampler_hop": dgtp.PROGRAMS["sampler_hop"],
    "sampler": "emu_nodes.p3.programs:P3Sampler",
    "graph_store": "emu_nodes.p3.programs:ColumnStore",
    "model_forward": "emu_nodes.p3.programs:ModelForward",
    "data_forward": "emu_nodes.p3.programs:DataForward",
    "data_backward": "emu_nodes.p3.programs:DataBackward",
    "model_backward": "emu_nodes.p3.programs:ModelBackward",
}


@dataclass(frozen=True)
class Pipeline:
    """A static order of phases, each behind the one that it needs, in every cycle."""

    order: tuple[str, ...]
    """Names of `PHASES` as the GPU runs them in one cycle."""
    behind: tuple[int, ...]
    """Cycles by which each phase of a mini-batch is behind its ``Mf``, in the order of
    `PHASES`: it never falls. Cycle c runs a phase of mini-batch c - behind."""

    def behind_of(self, kind: str) -> int:
        """Return the cycles that a kind of task is behind ``Mf``; others are not."""
        by_kind = dict(zip(PHASES.values(), self.behind, strict=True))
        return by_kind.get(kind, 0)

    @property
    def depth(self) -> int:
        """Cycles from the first phase of a mini-batch to its last."""
        return self.behind[-1]

    @property
    def missed(self) -> int:
        """Updates that the weights of a forward pass lack, tau.

        Those of mini-batch k are there for ``Mf`` of mini-batch k + 1 + tau.
        """
        # In a cycle that steps before the next forward pass, that update is not missed.
        steps_first = self.order.index("Mb") < self.order.index("Mf")
        return self.depth - steps_first


#: The paper's words leave open which of the two its pipeline is (docs/which_system.md).
PIPELINES = {
    "none": Pipeline(order=tuple(PHASES), behind=(0, 0, 0, 0)),
    "A": Pipeline(order=tuple(PHASES), behind=(0, 1, 1, 2)),
    "B": Pipeline(order=tuple(PHASES), behind=(0, 1, 2, 3)),
}


def column_blocks(
    shares: Sequence[float],
    feature_length: int,
    members: int,
) -> tuple[int, ...]:
    """Return the columns of each member: array_split, or as the shares say."""
    if not shares:
        return shard_sizes(feature_length, members)
    # Rounded as sums, so that the columns add up to all of them.
    ends = np.cumsum(shares) / sum(shares) * feature_length
    bounds = np.rint(ends)
    counts = np.diff(bounds, prepend=0).astype(int)
    return tuple(counts.tolist())
