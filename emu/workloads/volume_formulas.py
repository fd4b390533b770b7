"""Counts of what was sampled, and the bytes that each of them takes.

Formulas of the paper's implementation: features and parameters in the precision of the
job, labels int32, block edges as two int32, vertex ids and structure on request int64.
"""

from __future__ import annotations

from dataclasses import dataclass

LABEL_BYTES = 4
BLOCK_EDGE_BYTES = 8
VERTEX_ID_BYTES = 8
ANSWERED_EDGE_BYTES = 16


@dataclass(frozen=True)
class SampleCounts:
    """Counts of the sample of one sampler in one iteration."""

    owned: tuple[int, ...]
    """#(S_0 ∩ owned(g)): input vertices that each store owns."""
    edges: int
    """Sum of #E_l over the blocks."""
    seeds: int
    """B_s."""
    outputs: int = 0
    first_edges: int = 0
    """#S_1 and #E_1: destinations and edges of the first layer's block."""
    frontier_owned: tuple[tuple[int, ...], ...] = ()
    answered: tuple[tuple[int, ...], ...] = ()
    """Only multi-round sampling, per hop and store: vertices of the hop's frontier that
    the store owns, edges that it answers."""

    @property
    def inputs(self) -> int:
        """#S_0: every input vertex has one owner."""
        return sum(self.owned)

    def batch_bytes(self, feature_length: int, itemsize: int) -> int:
        """Return the bytes of the assembled mini-batch, sampler to worker."""
        return (
            itemsize * feature_length * self.inputs
            + BLOCK_EDGE_BYTES * self.edges
            + LABEL_BYTES * self.seeds
        )
