"""Time that the busiest port of a placed job needs for its bytes."""

from __future__ import annotations

import numpy as np

from emu.array_types import Floats
from emu.prediction.core import view
from emu.prediction.scheduling.compiled_problem import Layout
from emu.problem import Problem


def port_seconds(problem: Problem, layout: Layout, volumes: Floats) -> float:
    """Return the least seconds in which every port can carry its bytes.

    No schedule ends sooner: of capacities that change the largest counts.
    """
    job = problem.job
    counts = np.array(job.flow_counts)
    iterations = np.arange(job.iterations)
    is_sent = iterations < counts[:, np.newaxis]
    sent = np.where(is_sent, volumes, 0.0)
    sent_by_edge = sent.sum(axis=1)

    # What stays on a machine, or is order alone, crosses no port.
    core = layout.c
    is_flow = layout.group >= 0
    sent_by_group = np.bincount(
        layout.group[is_flow],
        sent_by_edge[is_flow],
        minlength=core.groups,
    )
    starts = view(layout.memory, core.hop_start, core.groups + 1, np.int64)
    ports = view(layout.memory, core.hop, core.hops, np.int64)
    hop_counts = np.diff(starts)
    carried = np.repeat(sent_by_group, hop_counts)

    most = problem.links.steps.most
    loads = np.bincount(ports, carried, minlength=len(most))
    seconds = loads / most
    return float(seconds.max(initial=0.0))
