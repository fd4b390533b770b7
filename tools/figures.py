#!/usr/bin/env python3
"""Draw figures 6-9 of the DGTP paper as this project reproduces them.

    python tools/figures.py [--quick] [--study search] [--out DIRECTORY]

Every set of machines is drawn as in the paper, and drawn again until the job fits. On
each, ETP, the improved search (for the same time) and DistDGL place the job once;
then every contender runs at every batch size and peak-to-mean ratio. Writes figures
(SVG and PNG), the CSV behind them, the tables and a manifest into a run directory. The
full study (20 draws) took 10 minutes on two cores; ``--quick`` makes 3 draws, and
``--transfers 3000`` shortens the searches.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from tools.paper_figures.contest import ITERATIONS, Draw, Duel, Span, warm
from tools.paper_figures.drawing import (
    FIGURES,
    draw_duels,
    draw_sweep,
    duel_table,
    verdict_table,
)
from tools.paper_figures.findings import by_series, verdicts, write_means, write_rows
from tools.paper_figures.reading import CHOICES, REASONS
from tools.paper_figures.settings import LOGICAL_PER_CORE, SETTINGS, Setting
from tools.paper_figures.traffic import REFERENCE_BATCH, BatchPool, sampled_pools

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCHES = (250, 500, REFERENCE_BATCH, 2000)
RATIOS = (1.2, 2.0, 3.0)
FULL, QUICK = 20, 3
WIDTH = 100  # columns of the tables in report.md

Found = tuple[Duel, list[Span]]


def one_draw(
    options: argparse.Namespace, name: str, number: int, pools: dict[int, BatchPool]
) -> Found:
    """Place the job on one set of machines and simulate it, unless ``search``."""
    setting = SETTINGS[name]
    draw = Draw(setting, number, pools, options.transfers, options.demands)
    spans: list[Span] = []
    if options.study != "search":
        for batch in BATCHES:
            spans += draw.spans("batch", batch, batch, None)
        for ratio in RATIOS:
            spans += draw.spans("pmr", ratio, REFERENCE_BATCH, ratio)
    return draw.duel, spans


def prepared(setting: Setting) -> dict[int, BatchPool]:
    """Sample the graph of a setting and compile the searches."""
    pools = sampled_pools(setting, BATCHES)
    warm(setting, pools[REFERENCE_BATCH])
    return pools


def all_draws(options: argparse.Namespace, console: Console) -> Iterator[Found]:
    """Yield what every draw shows, in the order they end; papers100M begins."""
    settings = [SETTINGS[name] for name in sorted(options.setting)]
    columns = "{task.description:32}", BarColumn(), MofNCompleteColumn()
    with (
        Progress(*columns, TimeRemainingColumn(), console=console) as progress,
        ProcessPoolExecutor(options.processes) as workers,
    ):
        bar = progress.add_task("graphs, compilation", total=None)
        # Forked workers inherit what has been compiled here.
        pools = {setting.name: prepared(setting) for setting in settings}
        jobs = [
            workers.submit(one_draw, options, setting.name, number, pools[setting.name])
            for setting in settings
            for number in range(options.draws)
        ]
        progress.update(bar, description="sets of machines", total=len(jobs))
        for job in as_completed(jobs):
            yield job.result()
            progress.advance(bar)


def write(folder: Path, duels: list[Duel], spans: list[Span]) -> None:
    """Write CSV, figures and tables, and print the tables."""
    write_rows(folder / "searches.csv", duels)
    draw_duels(duels, folder)
    tables = [duel_table(duels)]
    if spans:
        series = by_series(spans)
        write_rows(folder / "runs.csv", spans)
        write_means(folder / "means.csv", series)
        for number, (setting, sweep) in FIGURES.items():
            if (setting, sweep, "DGTP") in series:
                draw_sweep(number, series, folder)
        tables.insert(0, verdict_table(verdicts(series)))
    Console(width=WIDTH).print(*tables, sep="\n")
    with (folder / "report.md").open("w") as file:
        file.write("# The simulation study of the DGTP paper\n\n```text\n")
        Console(file=file, width=WIDTH).print(*tables, sep="\n")
        file.write(f"```\n\n{CHOICES}\n{REASONS}")


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} draws")
    parser.add_argument("--draws", type=int, help=f"sets of machines, {FULL} if full")
    parser.add_argument("--study", choices=["all", "search"], default="all")
    parser.add_argument(
        "--setting", choices=list(SETTINGS), action="append", help="both if not given"
    )
    parser.add_argument(
        "--transfers", type=int, default=10_000, help="candidates of ETP per cluster"
    )
    parser.add_argument(
        "--demands",
        choices=list(LOGICAL_PER_CORE),
        default="cores",
        help="what a core of a machine is to a demand of logical cores",
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, help="default: runs/figures-<time>")
    options = parser.parse_args(arguments)
    options.draws = options.draws or (QUICK if options.quick else FULL)
    options.setting = options.setting or list(SETTINGS)
    options.out = options.out or Path("runs", time.strftime("figures-%Y%m%d-%H%M%S"))
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run the study."""
    options, console = parsed(arguments), Console()
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    duels: list[Duel] = []
    spans: list[Span] = []
    for duel, found in all_draws(options, console):
        duels.append(duel)
        spans += found
    duels.sort(key=lambda duel: (duel.setting, duel.draw))
    spans.sort(key=lambda span: (span.setting, span.sweep, span.x, span.draw))
    write(options.out, duels, spans)
    manifest: dict[str, Any] = {
        "draws": options.draws,
        "settings": options.setting,
        "iterations": ITERATIONS,
        "batches": BATCHES,
        "ratios": RATIOS,
        "transfers": options.transfers,
        "demands": options.demands,
        "cluster_draws": {f"{d.setting} {d.draw}": d.cluster_draws for d in duels},
        "seconds": time.monotonic() - began,
    }
    (options.out / "manifest.json").write_text(json.dumps(manifest, indent=1))
    console.print(f"{options.out}, {manifest['seconds']:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
