"""Trainings in one process, kept on disk by all that decides their weights.

Systems whose workers learn from the same mini-batches have the same weights, and share
one training: the settings named here, and nothing else of a job, reach it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from emu.graph_data.prepared import forget_oldest, prepare_arrays, write_arrays
from emu.graph_data.sources import source_of
from emu.host.files import cache_home
from emu.names import file_part
from emu.training.looks import Progress

_WEIGHTS = (
    "dataset", "model", "optimizer", "precision", "seed", "epoch", "fanouts",
    "batch_size", "workers", "samplers_per_worker",
)  # fmt: skip
_PARTS = ("partitioner", "parts", "boxes")
#: Trainings on disk; those last used stay.
MOST_KEPT = 256


def weight_settings(settings: Mapping[str, Any], *, opens: bool) -> dict[str, Any]:
    """Return those of ``Job.settings`` that decide the weights of a training.

    Parts of the graph do with ``epoch: local`` alone, but none ``opens`` without.
    """
    parts = _PARTS if opens or settings.get("epoch") == "local" else ()
    return {name: settings[name] for name in (*_WEIGHTS, *parts) if name in settings}


def train_once(causes: Mapping[str, Any], train: Callable[[], Progress]) -> Progress:
    """Return a training, from disk where it is kept.

    ``causes``: JSON of all that decides it, ``dataset`` of ``Job.settings`` among it;
    emu's code and the versions of what computes are added here. Raises DataError when
    the data set is missing, or what is kept is damaged or cannot be written.
    """
    dataset = {**causes["dataset"]}
    name = dataset["name"]
    graph = source_of(dataset).fingerprint
    dataset.pop("root", None)  # the same graph elsewhere trains the same
    origin = [{**causes, "dataset": dataset}, graph, _versions()]
    text = json.dumps(origin, sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    home = cache_home() / "prepared"

    def write(partial: Path) -> dict[str, Any]:
        progress = train()
        forget_oldest(home, "*-accuracy", MOST_KEPT - 1)
        arrays = {"loss": progress.loss, "looks": progress.looks, **progress.accuracy}
        write_arrays(partial, arrays)
        names = {"accuracy": [*progress.accuracy]}
        return {**names, "spaced": progress.spaced, "diverged": progress.diverged}

    store = prepare_arrays(home / f"{file_part(name)}-{key}-accuracy", write)
    os.utime(store.folder)  # the newest now: in use
    facts = store.facts | {n: store.array(n) for n in ("loss", "looks")}
    facts["accuracy"] = {split: store.array(split) for split in facts["accuracy"]}
    return Progress(**facts)


@cache
def _versions() -> list[str]:
    """Return the digest of emu's code, any of which may count, and versions."""
    digest, home = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted((*home.rglob("*.py"), *home.glob("prediction/core/_core.*"))):
        digest.update(path.read_bytes())
    return [digest.hexdigest(), version("torch"), version("numpy")]
