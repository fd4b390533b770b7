"""Section ``job`` of ``system: rapid_gnn``."""

from __future__ import annotations

from typing import Literal

from emu.problem.fields.quantities import Window
from emu.systems.asking_section import AskingSection, asking_translation
from emu.systems.cache_section import CacheSection


class RapidSection(AskingSection):
    """RapidGNN: of known batches, the rows needed most come a window ahead.

    Its paper has an epoch for a window, and fills a second cache meanwhile. That one is
    taken when it is full; here every window begins with its own, and waits for it. All
    of its rows are sent anew, as in the code of its author.
    """

    system: Literal["rapid_gnn"]
    """Kind of job."""
    partitioner: Literal["metis", "metis-dgl", "hash"] = "metis"
    """Which machine owns which vertex."""
    cache: CacheSection | None = CacheSection(policy="hot", share=0.16, window=100)
    """Rows that every machine keeps of those that others own. By default about 100,000
    of those of ogbn-products on 4 machines."""
    credit_window: Window = 100
    """Batches under way, as many as its queue holds."""


TRANSLATION = asking_translation("metis")
