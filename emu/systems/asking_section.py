"""Systems whose samplers have the whole structure, and ask owners for feature rows."""

from __future__ import annotations

from typing import ClassVar

from emu.problem.fields.quantities import DurationPerDevice
from emu.systems import Keys, translation
from emu.systems.data_parallel.section import PullingReplicas, write_pulling
from emu.systems.replica_section import ReplicaTimesSection
from emu.systems.translation import CommonJob, Translation


class AskingTimesSection(ReplicaTimesSection):
    """Execution time of one task of each kind."""

    sampler_fetch: DurationPerDevice = 0.0
    """Draw a mini-batch and ask for its rows; by default part of ``sampler``."""


class AskingSection(PullingReplicas):
    """Data parallel training whose samplers draw, and ask for the rows they lack.

    Weights are those of data parallel training, unless features are rounded.
    """

    asks: ClassVar[bool] = True

    times: AskingTimesSection = AskingTimesSection()
    """Profiled times."""


def asking_translation(partitioner: str) -> Translation:
    """Return how such a system, of one partitioner, is written in the words of all."""

    def write(common: CommonJob) -> Keys:
        return {**write_pulling(common), "partitioner": partitioner}

    return Translation(translation.read_replicas, write)
