#!/usr/bin/env python3
"""Draw figures 6-9 of the DGTP paper as seen here, and where placement pays.

    python tools/figures.py [--quick] [--study sweeps|map] [--out DIRECTORY]

Every set of machines is drawn as in the paper, and drawn again until the job fits,
under both readings of its cores; every second one also with NICs that differ by
direction. On each, ETP, the improved search (for the same time) and DistDGL place the
job once; then every contender runs at every batch size and peak-to-mean ratio. The map
draws clusters by kind instead. Writes figures (SVG), the CSV behind them, report.md and
a manifest; what a run into the same directory has found is not computed again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from emu.atomic_file import write_atomic
from tools.paper_figures.contest import ITERATIONS, Draw, Duel, Span, warm
from tools.paper_figures.drawing import (
    FIGURES,
    comparison_table,
    draw_map,
    draw_sweep,
    duel_table,
    verdict_table,
)
from tools.paper_figures.findings import (
    Series,
    by_series,
    comparisons,
    verdicts,
    write_rows,
)
from tools.paper_figures.landscape import CELLS, Cell, Gain, draw_gain
from tools.paper_figures.settings import LOGICAL_PER_CORE, SETTINGS
from tools.paper_figures.traffic import REFERENCE_BATCH, BatchPool, sampled_pools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCHES = (250, 500, REFERENCE_BATCH, 2000)
RATIOS = (1.2, 2.0, 3.0)
FULL, QUICK = 20, 3

Pools = dict[int, BatchPool]
Kind = tuple[str, str]  # reading of the cores, and how NICs are drawn
Case = tuple[str, str, str, int]  # setting, reading, NICs, number


def kept(path: Path, find: Callable[[], Any]) -> Any:
    """Return the content of a JSON file, which is made of what ``find`` returns."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(find()))
    return json.loads(path.read_text())


def one_draw(out: Path, case: Case, pools: Pools, transfers: int) -> dict[str, Any]:
    """Place the job on one set of machines and simulate it at every point."""
    name, reading, nics, number = case

    def find() -> dict[str, Any]:
        draw = Draw(SETTINGS[name], number, pools, transfers, reading, nics)
        spans: list[Span] = []
        for batch in BATCHES:
            spans += draw.spans("batch", batch, batch, None)
        for ratio in RATIOS:
            spans += draw.spans("pmr", ratio, REFERENCE_BATCH, ratio)
        return {"duel": asdict(draw.duel), "spans": [asdict(span) for span in spans]}

    rows: dict[str, Any] = kept(
        out / "draws" / f"{name}-{reading}-{nics}-{number}.json", find
    )
    return rows


def one_gain(out: Path, cell: Cell, number: int, pools: Pools) -> dict[str, Any]:
    """Place the job on one cluster of the map."""
    name = "-".join(f"{value:g}" for value in (*cell, number))
    rows: dict[str, Any] = kept(
        out / "map" / f"{name}.json", lambda: asdict(draw_gain(cell, number, pools))
    )
    return rows


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """Yield what is to be drawn, evenly over settings, readings and NICs."""
    for number in range(options.draws):
        for name in sorted(options.setting):
            for reading in LOGICAL_PER_CORE:
                yield name, reading, "symmetric", number
            if number % 2 == 0:
                yield name, "cores", "asymmetric", number


def found(options: argparse.Namespace, console: Console) -> Iterator[dict[str, Any]]:
    """Yield what every draw shows, in the order they end."""
    columns = "{task.description:32}", BarColumn(), MofNCompleteColumn()
    with (
        Progress(*columns, TimeRemainingColumn(), console=console) as progress,
        ProcessPoolExecutor(options.processes) as workers,
    ):
        bar = progress.add_task("graphs, compilation", total=None)
        # Forked workers inherit what has been compiled here.
        pools = {
            name: sampled_pools(SETTINGS[name], BATCHES) for name in options.setting
        }
        jobs = []
        for name in options.setting:
            warm(SETTINGS[name], pools[name][REFERENCE_BATCH])
        if options.study != "map":
            jobs += [
                workers.submit(
                    one_draw, options.out, case, pools[case[0]], options.transfers
                )
                for case in cases(options)
            ]
        if options.study != "sweeps" and "products" in options.setting:
            jobs += [
                workers.submit(one_gain, options.out, cell, number, pools["products"])
                for number in range(options.draws)
                for cell in CELLS
            ]
        progress.update(bar, description="sets of machines", total=len(jobs))
        for job in as_completed(jobs):
            yield job.result()
            progress.advance(bar)


def write_sweeps(folder: Path, duels: list[Duel], spans: list[Span]) -> Iterator[str]:
    """Write CSV and figures; yield the tables."""
    write_rows(folder / "searches.csv", duels)
    write_rows(folder / "runs.csv", spans)
    series: dict[Kind, Series] = {
        kind: by_series(span for span in spans if (span.demands, span.nics) == kind)
        for kind in dict.fromkeys((span.demands, span.nics) for span in spans)
    }
    readings = {r: series[r, n] for r, n in series if n == "symmetric"}
    for number, (setting, _) in FIGURES.items():
        if any(span.setting == setting for span in spans):
            draw_sweep(number, readings, folder)
    yield verdict_table({name: verdicts(own) for name, own in readings.items()})
    for setting in dict.fromkeys(span.setting for span in spans):
        yield f"{setting}, batch {REFERENCE_BATCH}:\n\n" + comparison_table(
            {
                f"{reading}, {nics}": comparisons(own, setting, REFERENCE_BATCH)
                for (reading, nics), own in series.items()
            }
        )
    yield duel_table([duel for duel in duels if duel.nics == "symmetric"])


def write_map(folder: Path, gains: list[Gain]) -> None:
    """Write the map, and the CSV behind it."""
    write_rows(folder / "map.csv", gains)
    cells: dict[Cell, list[Gain]] = defaultdict(list)
    for gain in gains:
        cells[Cell(gain.spread, gain.room, gain.batch, gain.pmr)].append(gain)
    draw_map(cells, folder)


def write(folder: Path, rows: list[dict[str, Any]]) -> str:
    """Write all that was found; return the report."""
    duels = [Duel(**row["duel"]) for row in rows if "duel" in row]
    spans = [Span(**span) for row in rows for span in row.get("spans", ())]
    gains = [Gain(**row) for row in rows if "duel" not in row]
    duels.sort(key=lambda duel: (duel.setting, duel.demands, duel.nics, duel.draw))
    spans.sort(key=lambda span: (span.setting, span.sweep, span.x, span.draw))
    tables = list(write_sweeps(folder, duels, spans)) if spans else []
    if gains:
        write_map(folder, gains)
    report = "\n\n".join(tables) + "\n"
    write_atomic(folder / "report.md", report)
    return report


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} draws")
    parser.add_argument("--draws", type=int, help=f"sets of machines, {FULL} if full")
    parser.add_argument("--study", choices=["all", "sweeps", "map"], default="all")
    parser.add_argument(
        "--setting", choices=list(SETTINGS), action="append", help="both if not given"
    )
    parser.add_argument(
        "--transfers", type=int, default=10_000, help="candidates of ETP per cluster"
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
    print(write(options.out, list(found(options, console))))
    manifest: dict[str, Any] = {
        "draws": options.draws,
        "settings": options.setting,
        "iterations": ITERATIONS,
        "batches": BATCHES,
        "ratios": RATIOS,
        "transfers": options.transfers,
        "seconds": time.monotonic() - began,
    }
    write_atomic(options.out / "manifest.json", json.dumps(manifest, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
