"""One walk of a job's samplers over its training set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Epoch:
    """One walk of all samplers over the training set."""

    steps: int
    """Iterations of it; the last may have short batches."""
    seeds: int
    """Training vertices that it draws, of all workers."""
