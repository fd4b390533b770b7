"""The systems that train on sampled mini-batches, behind one door."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from emu.workloads.data_parallel import DataParallelConfig, data_parallel_job
from emu.workloads.dgtp import DgtpConfig, dgtp_job
from emu.workloads.p3 import P3Config, p3_job

if TYPE_CHECKING:
    from emu.problem import Job

#: Shape of a job of any of them.
TrainingConfig: TypeAlias = DgtpConfig | P3Config | DataParallelConfig


def training_job(config: TrainingConfig) -> Job:
    """Return the job of ``config``.

    Raises
    ------
    ValueError
        As the system's builder.
    """
    match config:
        case P3Config():
            return p3_job(config)
        case DataParallelConfig():
            return data_parallel_job(config)
        case DgtpConfig():
            return dgtp_job(config)
