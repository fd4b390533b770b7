"""Section ``job`` of ``system: salient_plus_plus``."""

from __future__ import annotations

from typing import ClassVar, Literal

from typing_extensions import override

from emu.problem.fields.quantities import Window
from emu.problem.workloads.fetches import FEATURE_TYPE
from emu.systems import Settings
from emu.systems.asking_section import AskingSection, asking_translation
from emu.systems.cache_section import CacheSection
from emu.systems.job_section import BuildContext


class SalientSection(AskingSection):
    """SALIENT++: samplers ask for rows, batches ahead, and keep those they often meet.

    Numbers and their count go to each owner, rows come back as half numbers. Batches
    pass the ten stages of its pipeline as credits allow; its collectives, which are
    ordered with what computes, are flows here. The chance to meet a vertex is that of
    this sampler, whose every hop draws for all vertices before it.
    """

    sends_counts: ClassVar[bool] = True

    system: Literal["salient_plus_plus"]
    """Kind of job."""
    partitioner: Literal["metis", "metis-dgl", "hash"] = "metis"
    """Which machine owns which vertex."""
    cache: CacheSection | None = CacheSection(policy="vip", share=0.32)
    """Rows that every machine keeps of those that others own; ``null``: none."""
    credit_window: Window = 10
    """Batches under way, which are its pipeline's stages; 1: nothing overlaps."""
    feature_type: Literal["float16", "float32"] = "float16"
    """Type of features, as they are stored and sent; what computes them is
    ``precision``."""

    @override
    def replica_settings(self, context: BuildContext) -> Settings:
        settings = super().replica_settings(context)
        return {**settings, FEATURE_TYPE: self.feature_type}


TRANSLATION = asking_translation("metis")
