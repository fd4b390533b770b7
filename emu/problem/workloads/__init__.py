"""Building blocks of jobs that several systems share: rings, credits, shapes, counts.

Must not know: systems, scenario files, machines beyond their names, placements.
"""

from emu.problem.workloads.all_reduce import (
    ALL_REDUCE,
    part_bounds,
    steps_of,
    window_of,
)
from emu.problem.workloads.copies import (
    CHECKPOINT,
    copies_of,
    copy_names,
    count_copy_bytes,
    with_copies,
    with_peers,
    without_copies,
)
from emu.problem.workloads.model_shapes import (
    PARTS,
    SPLIT_WEIGHTS,
    SampleCounts,
    first_layer_share,
    layer_shapes,
    parameter_count,
    shard_bounds,
    shard_sizes,
)
from emu.problem.workloads.several_jobs import (
    RELEASE,
    JobPart,
    repeat,
    several_jobs,
    several_realizations,
)

__all__ = [
    "ALL_REDUCE",
    "CHECKPOINT",
    "PARTS",
    "RELEASE",
    "SPLIT_WEIGHTS",
    "JobPart",
    "SampleCounts",
    "copies_of",
    "copy_names",
    "count_copy_bytes",
    "first_layer_share",
    "layer_shapes",
    "parameter_count",
    "part_bounds",
    "repeat",
    "several_jobs",
    "several_realizations",
    "shard_bounds",
    "shard_sizes",
    "steps_of",
    "window_of",
    "with_copies",
    "with_peers",
    "without_copies",
]
