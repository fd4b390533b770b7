"""Vanilla partition parallelism: every epoch exchanges all rows of its own."""

from emu.systems.exchange_system import exchange_system

PARTITION_PARALLEL = exchange_system(
    "partition_parallel",
    "emu.systems.partition_parallel.section:PartitionParallelSection",
)
