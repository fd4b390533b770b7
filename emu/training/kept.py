"""Trainings in one process, kept on disk by all that decides their weights.

Systems whose workers learn from the same mini-batches have the same weights, and share
one training: the settings named here, and nothing else of a job, reach it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from emu.errors import DataError
from emu.graph_data.prepared import (
    Facts,
    PreparedArrays,
    forget_oldest,
    list_finished,
    prepare_arrays,
    write_arrays,
)
from emu.graph_data.sources import source_of
from emu.host.files import cache_home
from emu.names import file_part
from emu.problem.workloads.exchange import is_exact
from emu.problem.workloads.fetches import FEATURE_TYPE
from emu.training.layers import JobSettings
from emu.training.looks import HELD, Progress, reach

_WEIGHTS = (
    "dataset", "model", "optimizer", "precision", "seed", "epoch", "fanouts",
    "batch_size", "workers", "samplers_per_worker", FEATURE_TYPE,
)  # fmt: skip
_PARTS = ("partitioner", "parts", "boxes")
#: Trainings on disk; those last used stay.
MOST_KEPT = 1024
_ENDING = "-accuracy"


def weight_settings(settings: JobSettings, *, opens: bool) -> dict[str, Any]:
    """Return those of ``Job.settings`` that decide the weights of a training.

    Parts of the graph do with ``epoch: local``, or where they exchange less than all,
    but none ``opens`` without.
    """
    # What parts exchange decides, unless all of them have all rows of their epoch.
    exchanges = () if is_exact(settings) else ("exchanges",)
    # With `epoch: local` a sampler draws from its own part; else all draw from all, as
    # the sampler of the only part does.
    is_local = settings.get("epoch") == "local" and settings.get("parts") != 1
    is_parted = opens or is_local or exchanges
    names = [*_WEIGHTS, *exchanges, *(_PARTS if is_parted else ())]
    return {name: settings[name] for name in names if name in settings}


@dataclass(frozen=True)
class Extent:
    """Length of a training that ends where a target is reached."""

    steps: int
    """Steps at most."""
    split: str
    accuracy: float
    """Share of the split that `HELD` looks in a row have to hold."""

    def cut(self, progress: Progress) -> Progress | None:
        """Return a training as far as this goes; None where it ended before.

        ``progress``: of equal weights and looks, to this target or another one.
        """
        count = int(
            # Looks that are evenly spaced are the same at any length of a training.
            np.searchsorted(progress.looks[: progress.spaced], self.steps, "right")
        )
        levels = progress.accuracy[self.split][:count]
        position = reach(levels, self.accuracy)
        if position is not None:
            # It ends where this is known: at the last of the looks that hold the
            # target.
            count = position + HELD
            last_step = int(progress.looks[count - 1])
        # After it has diverged no step follows, at whatever length.
        elif progress.diverged is not None and progress.diverged <= self.steps:
            return progress
        elif len(progress.loss) >= self.steps:
            last_step = self.steps
        else:
            return None

        accuracy = {
            split: shares[:count] for split, shares in progress.accuracy.items()
        }
        return Progress(
            loss=progress.loss[:last_step],
            looks=progress.looks[:count],
            accuracy=accuracy,
            spaced=count,
        )


def train_once(causes: JobSettings, train: Callable[[], Progress]) -> Progress:
    """Return a training, from disk where it is kept.

    ``causes``: JSON of all that decides it, ``dataset`` of ``Job.settings`` among it;
    emu's code and the versions of what computes are added here. Raises DataError when
    the data set is missing, or what is kept is damaged or cannot be written.
    """
    home = cache_home() / "prepared"
    return _keep(home / f"{_stem(causes)}{_ENDING}", train)


def train_until(
    causes: JobSettings, extent: Extent, train: Callable[[], Progress]
) -> Progress:
    """Return a training as far as an extent goes, from disk where as much is kept.

    A longer one holds it, and one that reached its target holds it at any length.
    ``causes``: as of `train_once`, with the spacing of looks; raises as that.
    """
    home = cache_home() / "prepared"
    stem = _stem(causes)
    for folder in list_finished(home, f"{stem}-*{_ENDING}"):
        with suppress(DataError):  # another process may just remove it
            if (progress := extent.cut(_read(folder))) is not None:
                return progress

    length = f"{extent.steps}-{extent.split}-{extent.accuracy:.9g}"
    progress = _keep(home / f"{stem}-{file_part(length)}{_ENDING}", train)
    return extent.cut(progress) or progress


def _stem(causes: JobSettings) -> str:
    dataset = {**causes["dataset"]}
    name = dataset["name"]
    fingerprint = source_of(dataset).fingerprint
    dataset.pop("root", None)  # the same graph elsewhere trains the same
    origin = [{**causes, "dataset": dataset}, fingerprint, _versions()]
    text = json.dumps(origin, sort_keys=True)
    return f"{file_part(name)}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _keep(folder: Path, train: Callable[[], Progress]) -> Progress:
    def write(partial: Path) -> Facts:
        progress = train()
        # One fewer than are kept: this one comes beside them.
        forget_oldest(folder.parent, f"*{_ENDING}", MOST_KEPT - 1)
        arrays = {"loss": progress.loss, "looks": progress.looks, **progress.accuracy}
        write_arrays(partial, arrays)
        return {
            "accuracy": [*progress.accuracy],
            "spaced": progress.spaced,
            "diverged": progress.diverged,
        }

    prepare_arrays(folder, write)
    return _read(folder)


def _read(folder: Path) -> Progress:
    store = PreparedArrays(folder)
    with suppress(OSError):
        os.utime(folder)  # the newest now: in use
    return Progress(
        loss=store.array("loss"),
        looks=store.array("looks"),
        accuracy={split: store.array(split) for split in store.facts["accuracy"]},
        spaced=store.facts["spaced"],
        diverged=store.facts["diverged"],
    )


@cache
def _versions() -> list[str]:
    """Return the digest of emu's code, any of which may count, and versions."""
    digest = hashlib.sha256()
    home = Path(__file__).parents[1]
    # The compiled core draws samples, which decide weights.
    core = home.glob("prediction/core/_core.*")
    for path in sorted((*home.rglob("*.py"), *core)):
        digest.update(path.read_bytes())
    return [digest.hexdigest(), version("torch"), version("numpy")]
