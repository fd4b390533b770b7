"""Picture of how far apart sockets and simulation are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from pathlib import Path

    from tools.fidelity_study.trial import Trial


def draw_cdf(found: list[Trial], path: Path) -> None:
    """Plot the distribution of the error of trusted runs and of all."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for label, chosen in (
        ("all runs", found),
        ("trusted runs", [t for t in found if t.trust == "trusted"]),
    ):
        apart = np.sort(np.abs([t.makespan_error for t in chosen]))
        apart = 100 * apart[~np.isnan(apart)]
        if len(apart):
            share = np.arange(1, len(apart) + 1) / len(apart)
            axes.step(apart, share, where="post", label=label)
    for aim in (0.5, 1.5, 3.0):
        axes.axvline(aim, color="grey", linewidth=0.5, linestyle=":")
    axes.set_xscale("log")
    axes.set_xlabel("makespan error, % of the makespan predicted before the run")
    axes.set_ylabel("share of runs")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
