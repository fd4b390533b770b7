"""``emu warm`` and ``emu clean``: what commands keep and leave on this host."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

import emu
from emu.cli.app import app
from emu.cli.compile_notice import tell_of_compiling
from emu.cli.options import JsonTarget, emit
from emu.names import for_terminal
from emu.scratch import left_behind, remove


@app.command()
def warm() -> None:
    """Compile now what would be compiled at its first use.

    It takes up to 70 s. The code is kept on disk, per version of emu and its
    libraries; what is there already takes seconds. A container image or a CI cache may
    hold it.
    """
    begun = time.monotonic()
    tell_of_compiling()
    _simulation()
    _placement()
    emu.explain(emu.load("golden"))
    _scheduler()
    _sampling()
    typer.echo(f"compiled, in {time.monotonic() - begun:.1f} s of wall time")


def _simulation() -> None:
    from emu.analysis.bounds import optimality  # noqa: PLC0415 - numba

    for policy in ("oes", "oes_cp"):  # one that looks ahead, too
        ready = emu.place(
            emu.load("golden", {"schedule.policy": policy, "expect": None})
        )
        optimality(ready.simulate(), ready.realization, policy)


def _placement() -> None:
    from emu.placement.search import SearchOptions, search  # noqa: PLC0415 - numba

    ready = emu.place(emu.load("golden", {"expect": None}))
    job, cluster = ready.problem.job, ready.problem.cluster
    few = {"policy": "etp", "iterations": 50}
    emu.place(emu.load("golden", {"expect": None, "placement": few}))
    for exhaustive in (True, False):
        options = SearchOptions(transfers=50, iterations=3, exhaustive=exhaustive)
        search(job, cluster, ready.expected, options=options)


def _scheduler() -> None:
    from emu.coordinator.scheduler_driver import warm_up_scheduler  # noqa: PLC0415 - sockets

    warm_up_scheduler("oes")


def _sampling() -> None:
    from emu.graph_data import BatchPlan, warm_up  # noqa: PLC0415 - numba
    from emu.graph_data.synthetic_graph import synthetic_source  # noqa: PLC0415

    warm_up()
    graph = synthetic_source("products-like", scale=0.001, seed=0).load()
    plan = BatchPlan(seed=0, samplers=1, batch_size=1, fanouts=(1,))
    plan.batch(graph.structure, graph.train, 0, 0)


@app.command()
def clean(
    runs: Annotated[
        Path, typer.Option("--runs", metavar="DIR", help="Run directories to look in.")
    ] = Path("runs"),
    json_target: JsonTarget = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is there; remove nothing.")
    ] = False,
) -> None:
    """Remove files that a killed process or a power cut left.

    These are folders of trials and of METIS in the temporary directory, and files half
    written in run directories: of this user, and of processes that are no more. Runs
    leave no process, port, namespace or shared memory, however they are killed.

    Raises
    ------
    DataError
        When something cannot be removed.
    """
    found = left_behind(runs)
    for path in [] if dry_run else found:
        remove(path)
    if emit(json_target, [str(path) for path in found]):
        for path in found:
            typer.echo(f"{'found' if dry_run else 'removed'} {for_terminal(str(path))}")
        if not found:
            typer.echo("nothing was left behind")
