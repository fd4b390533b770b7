"""Guard runs of P3 against features on the network."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emu.analysis.traffic import received_kinds
from emu.systems.p3.job import PHASES
from emu.trust.violation import Finding
from emu.wire import FEATURES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.trust.guards import Evidence

PAYLOADS = "payloads"


def no_features(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every edge of P3 that brought features to another process.

    P3 spreads columns so that no row of features ever travels. Kinds are what the
    receivers read in the frames, not what the workload says of its edges.
    """
    job = evidence.schedule.problem.job
    of_p3 = {task.job_name for task in job.tasks if task.kind == PHASES["Mf"]}
    for (edge, kind), count in received_kinds(evidence.statistics).items():
        source = job.tasks[job.edges[edge].source]
        if kind == FEATURES and count and source.job_name in of_p3:
            size = count / evidence.byte_scale
            yield Finding(
                PAYLOADS,
                math.nan,
                f"{job.edge_names[edge]} carried {size:,.0f} bytes of features; under "
                "P3 every machine keeps its columns",
            )
