"""Trainings in one process, kept on disk by all that decides their weights.

Systems whose workers learn from the same mini-batches have the same weights, and share
one training: the settings named here, and nothing else of a job, reach it.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from emu.graph_data.prepared import (
    PreparedArrays,
    forget_oldest,
    prepare_arrays,
    write_arrays,
)
from emu.graph_data.sources import find_source
from emu.host.files import cache_home
from emu.names import file_part
from emu.training.looks import Progress, Question

_WEIGHTS = (
    "dataset", "model", "optimizer", "precision", "seed", "epoch", "fanouts",
    "batch_size", "workers", "samplers_per_worker",
)  # fmt: skip
_PARTS = ("partitioner", "parts", "boxes")
_SPLITS = ("train", "valid", "test")
#: Trainings on disk; those last used stay.
MOST_KEPT = 256


def weight_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of ``Job.settings`` by which a job trains in one process.

    The parts of the graph among them decide weights with ``epoch: local`` alone.
    """
    return {name: settings[name] for name in (*_WEIGHTS, *_PARTS) if name in settings}


def list_causes(settings: Mapping[str, Any], missed: int) -> dict[str, Any]:
    """Return what decides the weights of a training that no schedule changes."""
    causes = weight_settings(settings)
    if causes.get("epoch") != "local":
        causes = {k: value for k, value in causes.items() if k not in _PARTS}
    return {**causes, "missed": missed}


def train_once(
    causes: Mapping[str, Any], question: Question, train: Callable[[], Progress]
) -> Progress:
    """Return a training that answers a question, from disk where one is kept.

    Parameters
    ----------
    causes
        All that decides the weights, ``dataset`` of ``Job.settings`` among it. The code
        of emu and the versions of what computes are added here.

    Raises
    ------
    DataError
        When the data set is missing, or what is kept is damaged or cannot be written.
    """
    dataset = {**causes["dataset"]}
    root, scale = dataset.pop("root", None) or "", dataset.get("scale") or 1.0
    seed, name = dataset.get("seed") or 0, dataset["name"]
    source = find_source(name, scale=scale, seed=seed, root=root)
    stated = {**causes, "dataset": dataset, "graph": source.fingerprint}
    text = json.dumps([stated, _versions()], sort_keys=True, default=str)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    home = cache_home() / "prepared"
    stem = f"{file_part(name)}-{key}-accuracy"
    for folder in sorted(home.glob(f"{glob.escape(stem)}-*")):
        if not folder.suffix:
            known = question.answer(_read(PreparedArrays(folder)))
            if known is not None:
                os.utime(folder)  # the newest now: in use
                return known

    def write(partial: Path) -> dict[str, Any]:
        progress = train()
        forget_oldest(home, "*-accuracy-*", MOST_KEPT - 1)
        arrays = {"loss": progress.loss, "looks": progress.looks, **progress.accuracy}
        write_arrays(partial, arrays)
        return {"spaced": progress.spaced, "diverged": progress.diverged}

    asked = [question.steps, question.looks.tolist(), question.split, question.target]
    number = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]
    return _read(prepare_arrays(home / f"{stem}-{number}", write))


def _read(arrays: PreparedArrays) -> Progress:
    accuracy = {split: arrays.array(split) for split in _SPLITS}
    return Progress(
        arrays.array("loss"), arrays.array("looks"), accuracy, **arrays.facts
    )


@cache
def _versions() -> list[str]:
    """Return the digest of emu's code, any of which may count, and versions."""
    digest, home = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted((*home.rglob("*.py"), *home.rglob("_core.*"))):
        digest.update(path.read_bytes())
    return [digest.hexdigest(), version("torch"), version("numpy")]
