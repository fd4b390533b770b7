"""Run distributed GNN training on an emulated cluster, beside its simulation.

``emu.load_run(path)`` reads a run directory: schedules, and pandas frames of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emu.runs.recorded_run import RecordedRun, load_run

__all__ = ["RecordedRun", "load_run"]


def __getattr__(name: str) -> Any:
    # Lazily: ``import emu`` comes first in every node process and takes no time.
    if name in __all__:
        return getattr(importlib.import_module("emu.runs.recorded_run"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
