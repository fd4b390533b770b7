"""Builders: what a user writes of a job becomes tasks, edges, lags and volumes.

Must not know: scenario files, machines beyond their names, placements, policies.
"""

from emu.workloads.credit import credit_edges, window_of
from emu.workloads.custom import CustomFlow, CustomTask, custom_job, custom_realization
from emu.workloads.dgtp import DgtpConfig, dgtp_job, dgtp_times
from emu.workloads.volume_formulas import (
    SampleCounts,
    dgtp_volumes,
    parameter_count,
    shard_sizes,
)

__all__ = [
    "CustomFlow",
    "CustomTask",
    "DgtpConfig",
    "SampleCounts",
    "credit_edges",
    "custom_job",
    "custom_realization",
    "dgtp_job",
    "dgtp_times",
    "dgtp_volumes",
    "parameter_count",
    "shard_sizes",
    "window_of",
]
