"""Settings that an advice tries, and which of them change what a training learns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from emu.experiment.prospects import Prospect
from emu.experiment.row_figures import weight_causes
from emu.graph_data import open_for
from emu.systems import Edit
from emu.systems.system import systems
from emu.units import SIZE

#: Shares of all features that a cache holds.
_CACHES = (0.1, 0.3)
#: Settings of a training that its family does not depend on.
_WHO_HOLDS = (
    "workers", "samplers_per_worker", "batch_size", "epoch", "partitioner", "parts",
    "boxes",
)  # fmt: skip


def family_of(prospect: Prospect) -> str:
    """Return what decides how fast a prospect learns, but for chance, as text."""
    causes = weight_causes(prospect.plain)
    if "job" not in causes:  # of an asynchronous one all decides
        optimizer = causes["optimizer"]
        causes["optimizer"] = {**optimizer, "lr": None}
        causes["seeds"] = prospect.timed.seeds_per_step
        for key in _WHO_HOLDS:
            causes.pop(key, None)
    return json.dumps(causes, sort_keys=True, default=str)


def list_knobs(prospect: Prospect) -> dict[str, Sequence[object]]:
    """Return settings that change the speed of a prospect, with values to try."""
    job = prospect.plain.job
    fields = type(job).model_fields
    choices: dict[str, Sequence[object]] = {
        "samplers_per_worker": (1, 2, 4),
        "features": ("host", "device"),
        "epoch": ("replicate", "local"),
    }
    if "cache" in fields:
        choices["cache"] = (None, *list_caches(prospect))
    knobs: dict[str, Sequence[object]] = {}
    system = systems()[job.system]
    for key, options in system.knobs.items():
        knobs[f"job.{key}"] = options

    for key, values in choices.items():
        if key in fields:
            knobs[f"job.{key}"] = values
    knobs["schedule.policy"] = ("oes", "maxmin")
    return knobs


def list_caches(prospect: Prospect) -> Iterator[Edit]:
    """Yield caches that hold shares of all features."""
    dataset = open_for(prospect.timed.experiment.problem.job.settings)
    # 4 bytes for a number.
    features = 4 * dataset.vertices * dataset.feature_length
    for share in _CACHES:
        size_in_bytes = round(features * share)
        size = SIZE.exact(size_in_bytes)
        yield {"policy": "degree", "size": size}
