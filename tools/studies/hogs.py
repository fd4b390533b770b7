"""Runs beside busy, faulting, paging neighbours, and how good their verdicts are.

    tools/study hogs OUT [--scenarios N] [--repeats R] [--wall S]

Every drawn scenario runs calm, beside busy, bursting, faulting and paging neighbours,
and with one of its processes stopped for a while.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from emu.experiment.run_experiment import carry_out
from tests.fidelity.corpus import draw_scenario
from tests.fidelity.neighbours import CONDITIONS, Stopper, hogging, possible
from tools.runner import Study
from tools.studies.fidelity import RIGHT, WRONG
from tools.trials.trial import Trial, attempt, prepared, scenario_of

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Sequence

    from emu.experiment.run_experiment import ExperimentOutcome
    from tools.runner import Work

#: A bound this close to the error, as a share of the makespan, is that error.
_EXACT = 1e-6


def options(parser: ArgumentParser) -> None:
    """Add what is drawn."""
    add = parser.add_argument
    add("--scenarios", type=int, default=20)
    add("--first", type=int, default=0, help="seed of the first one")
    add("--repeats", type=int, default=1)
    add("--wall", type=float, default=1.2, help="seconds per run")
    add("--processes", type=int, default=10, help="per job, at most")


def work(options: Namespace) -> Iterator[Work[Trial]]:
    """Yield every scenario under every condition that this user can bring about."""
    for seed in range(options.first, options.first + options.scenarios):
        for repeat in range(options.repeats):
            for name in possible():
                case = f"drawn-{seed}@{name}/{repeat}"
                yield case, partial(hogged, options, case, seed, repeat)


def hogged(options: Namespace, case: str, seed: int, repeat: int) -> list[Trial]:
    """Run a scenario under the condition that its case names; return its row."""
    content = draw_scenario(seed, most_processes=options.processes)
    experiment = prepared(scenario_of(content), options.wall)
    condition = CONDITIONS[case.partition("@")[2].partition("/")[0]]
    stopper = Stopper(np.random.default_rng([seed, repeat]), options.wall)

    def carry(*run: Any) -> ExperimentOutcome:
        watched: Any = (stopper,) if condition.stops else ()
        try:
            return carry_out(*run, *watched)
        finally:
            stopper.end()

    with hogging(condition, options.out):
        trial = attempt(case, experiment, options.out / "runs", carry=carry)
    return [replace(trial, note=stopper.story)]


def table(rows: list[Trial], _: Namespace) -> list[str]:
    """Return a line per condition and one for all, and what this host lacks."""
    names = list(dict.fromkeys(row.variant for row in rows))
    title = (
        "condition   runs failed | error p50    p95    max % | off flagged | "
        "near alarms untrusted | covered  bound/error p50"
    )
    swap = psutil.swap_memory().total
    note = f"{swap / 1e9:.1f} GB" if swap else "none: paging uses a file of its own"
    lines = [_line(n, [r for r in rows if r.variant == n]) for n in names]
    return [title, *lines, _line("all", rows), f"swap: {note}"]


def _line(name: str, rows: Sequence[Trial]) -> str:
    done = [row for row in rows if row.trust != "failed"]
    start = f"{name:11} {len(rows):4} {len(rows) - len(done):6}"
    if not done:
        return start
    error = np.array([row.worst_error for row in done])
    bound, trust = (np.array([getattr(r, n) for r in done]) for n in ("bound", "trust"))
    off, near = error > WRONG, error <= RIGHT
    p50, p95 = 100 * np.percentile(error, [50, 95])
    ratio = float(np.median(bound / np.maximum(error, 1e-9)))
    return (
        f"{start} | {p50:9.3f} {p95:6.2f} {100 * error.max():8.2f} "
        f"| {off.sum():3} {(off & (trust != 'trusted')).sum():7} "
        f"| {near.sum():4} {(near & (trust != 'trusted')).sum():6} "
        f"{(near & (trust == 'untrusted')).sum():9} "
        f"| {100 * (bound >= error - _EXACT).mean():5.1f} % {ratio:12.2f}"
    )


STUDY = Study(
    row=Trial,
    work=work,
    table=table,
    options=options,
    settled=("wall", "processes"),
)
