"""Checks of this host before anything compiles, trains or starts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from emu.errors import DataError
from emu.graph_data.sources import find_source
from emu.optional_library import INSTALL_TORCH, is_installed

if TYPE_CHECKING:
    from emu.scenario import Scenario


def check_ready(scenario: Scenario, runs: Path, *, here: bool = True) -> None:
    """Look for torch where the job trains, for its data sets, and for room to write.

    Parameters
    ----------
    runs
        Directory that will take the run directory; nothing is left there.
    here
        Whether this host carries processes of the run.

    Raises
    ------
    DataError
        When one of them is missing; says what to do.
    """
    parts = [alone for _, alone in scenario.parts()] if scenario.jobs else [scenario]
    for alone in parts:
        if not alone.job.trains:
            continue
        if here and not is_installed("torch"):
            raise DataError(
                f"this job trains, and torch is not installed on this host: "
                f"{INSTALL_TORCH}"
            )
        stated = alone.to_job(train_vertices=1).settings["dataset"]
        find_source(
            stated["name"],
            scale=stated["scale"],
            seed=stated["seed"],
            root=stated["root"],
        )
    _check_writable(runs)


def _check_writable(runs: Path) -> None:
    """Make a folder where the run directory will be, and remove it: root may all."""
    there = next(path for path in (runs, *runs.absolute().parents) if path.exists())
    try:
        Path(tempfile.mkdtemp(prefix=".emu-", dir=there)).rmdir()
    except OSError as error:
        raise DataError(
            f"cannot make a run directory here: {error.strerror}; choose another with "
            "--runs",
            path=str(runs),
        ) from error
