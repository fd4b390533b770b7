"""Building blocks of jobs that several systems share: rings, credits, shapes, counts.

Must not know: systems, scenario files, machines beyond their names, placements.
"""

from emu.problem.workloads.all_reduce import part_bounds, steps_of, window_of
from emu.problem.workloads.copies import CHECKPOINT, copies_of, without_copies
from emu.problem.workloads.model_shapes import (
    PARTS,
    SPLIT_WEIGHTS,
    SampleCounts,
    layer_shapes,
    parameter_count,
    shard_bounds,
    shard_sizes,
)
from emu.problem.workloads.several_jobs import RELEASE, JobPart, repeat, several_jobs

__all__ = [
    "CHECKPOINT",
    "PARTS",
    "RELEASE",
    "SPLIT_WEIGHTS",
    "JobPart",
    "SampleCounts",
    "copies_of",
    "layer_shapes",
    "parameter_count",
    "part_bounds",
    "repeat",
    "several_jobs",
    "shard_bounds",
    "shard_sizes",
    "steps_of",
    "window_of",
    "without_copies",
]
