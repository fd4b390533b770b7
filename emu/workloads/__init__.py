"""Builders: what a user writes of a job becomes tasks, edges, lags and volumes.

Must not know: scenario files, machines beyond their names, placements, policies.
"""

from emu.workloads.all_reduce import (
    ALL_REDUCE,
    part_bounds,
    steps_of,
)
from emu.workloads.collectives import SEGMENTS, AllReduce, with_collectives
from emu.workloads.credit import credit_edges, window_of
from emu.workloads.custom import CustomFlow, CustomTask, custom_job, custom_realization
from emu.workloads.data_parallel import (
    DataParallelConfig,
    data_parallel_job,
    data_parallel_realization,
)
from emu.workloads.dgtp import DgtpConfig, dgtp_job, dgtp_times
from emu.workloads.model_shapes import (
    PARTS,
    SPLIT_WEIGHTS,
    first_layer_share,
    layer_shapes,
    parameter_count,
)
from emu.workloads.p3 import (
    PHASES,
    PIPELINES,
    P3Config,
    Pipeline,
    column_blocks,
    p3_job,
)
from emu.workloads.p3_volumes import SplitModel, p3_realization, split_model
from emu.workloads.several_jobs import (
    RELEASE,
    JobPart,
    repeated,
    several_jobs,
    several_realizations,
)
from emu.workloads.shards import shard_bounds, shard_sizes
from emu.workloads.training import TrainingConfig, training_job
from emu.workloads.volume_formulas import (
    SampleCounts,
    dgtp_volumes,
)

__all__ = [
    "ALL_REDUCE",
    "PARTS",
    "PHASES",
    "PIPELINES",
    "RELEASE",
    "SEGMENTS",
    "SPLIT_WEIGHTS",
    "AllReduce",
    "CustomFlow",
    "CustomTask",
    "DataParallelConfig",
    "DgtpConfig",
    "JobPart",
    "P3Config",
    "Pipeline",
    "SampleCounts",
    "SplitModel",
    "TrainingConfig",
    "column_blocks",
    "credit_edges",
    "custom_job",
    "custom_realization",
    "data_parallel_job",
    "data_parallel_realization",
    "dgtp_job",
    "dgtp_times",
    "dgtp_volumes",
    "first_layer_share",
    "layer_shapes",
    "p3_job",
    "p3_realization",
    "parameter_count",
    "part_bounds",
    "repeated",
    "several_jobs",
    "several_realizations",
    "shard_bounds",
    "shard_sizes",
    "split_model",
    "steps_of",
    "training_job",
    "window_of",
    "with_collectives",
]
