"""A fit in few numbers: every iteration is the mean one.

Volumes and times by iteration say what a run was. Their means say what its job is, in a
scenario that a person can read and change, with as many iterations as one likes.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import numpy as np

from emu.lab.fitting.causes import FittedSteps
from emu.lab.fitting.conversations import Unfittable
from emu.lab.fitting.iterations import Asked, FittedIterations


class Template(StrEnum):
    """The kind of a job, where it is known."""

    DISTDGL = "distdgl"
    """Rounds of requests to servers, then an all-reduce."""
    ALLREDUCE = "allreduce"
    """All-reduces, and nothing else between machines."""


def mean_iterations(
    found: FittedIterations | FittedSteps, template: Template
) -> FittedIterations:
    """Return as many iterations, all like the mean of those that were found.

    Raises Unfittable when the run is none of the template's kind.
    """
    if isinstance(found, FittedSteps):
        raise Unfittable(
            f"template {template} is of iterations that end with all-reduces: it goes "
            "without --mark, in runs that have such"
        )
    if template is Template.ALLREDUCE and found.requests:
        raise Unfittable(
            "its processes ask those of another program, and template allreduce has "
            "none; distdgl has"
        )
    if template is Template.DISTDGL and not found.requests:
        raise Unfittable(
            "its processes ask no servers, as in template distdgl; allreduce is for "
            "such runs"
        )
    count = found.count

    def mean_bytes(sizes: dict[Asked, np.ndarray]) -> dict[Asked, np.ndarray]:
        return {key: np.full(count, round(each.mean())) for key, each in sizes.items()}

    return replace(
        found,
        stages={
            one: np.repeat(times.mean(1, keepdims=True), count, axis=1)
            for one, times in found.stages.items()
        },
        requests=mean_bytes(found.requests),
        answers=mean_bytes(found.answers),
        services={
            key: np.full(count, times.mean()) for key, times in found.services.items()
        },
    )
