"""What many trials say together."""

from __future__ import annotations

import csv
import dataclasses
import itertools
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from emu.coordinator.trial import Trial

if TYPE_CHECKING:
    from pathlib import Path


def write_csv(found: list[Trial], path: Path) -> None:
    """Write every run."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in dataclasses.fields(Trial)])
        writer.writeheader()
        writer.writerows(trial.to_json() for trial in found)


def table(found: list[Trial]) -> list[str]:
    """Return the figures of all runs, line by line."""
    apart = np.abs([t.fidelity for t in found])
    finished = ~np.isnan(apart)
    trusted = np.array([t.trust == "trusted" for t in found])
    off = apart > 0.03
    doubtful = int((finished & ~trusted).sum())
    retried = sum(trial.retries for trial in found)
    lines = [f"runs {len(found)}, not trusted {doubtful}, retried {retried}"]
    lines += [f"failed {int((~finished).sum())}"]
    flow_errors = np.array([t.flow_error for t in found])
    for name, values, which in (
        ("makespan, all", apart, finished),
        ("makespan, trusted", apart, trusted),
        ("flow lengths p95, trusted", flow_errors, trusted),
    ):
        if which.any():
            p50, p95 = 100 * np.percentile(values[which], [50, 95])
            most = 100 * values[which].max()
            lines.append(f"{name:26} p50 {p50:.3f} p95 {p95:.3f} max {most:.3f} %")
    flagged = int((off & ~trusted).sum())
    lines.append(f"off by > 3 %: {int(off.sum())}, flagged {flagged}")
    calm = finished & (apart <= 0.01) & ~trusted
    lines.append(f"flagged though within 1 %: {int(calm.sum())}")
    return lines


def draw_cdf(found: list[Trial], path: Path) -> None:
    """Plot the distribution of the error of trusted runs and of all."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for label, chosen in (
        ("all runs", found),
        ("trusted runs", [t for t in found if t.trust == "trusted"]),
    ):
        apart = np.sort(np.abs([t.fidelity for t in chosen]))
        apart = 100 * apart[~np.isnan(apart)]
        if len(apart):
            share = np.arange(1, len(apart) + 1) / len(apart)
            axes.step(apart, share, where="post", label=label)
    for aim in (0.5, 1.5, 3.0):
        axes.axvline(aim, color="grey", linewidth=0.5, linestyle=":")
    axes.set_xscale("log")
    axes.set_xlabel("emulated against simulated makespan, % apart")
    axes.set_ylabel("share of runs")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)


def kendall(first: list[float], second: list[float]) -> float:
    """Return Kendall's tau (a) of two lists of one length."""
    pairs = list(itertools.combinations(range(len(first)), 2))
    concordant = sum(
        np.sign(first[i] - first[j]) * np.sign(second[i] - second[j]) for i, j in pairs
    )
    return float(concordant / len(pairs))
