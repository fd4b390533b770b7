"""Figures 6 to 9 of the DGTP paper as seen here: its simulation study.

    tools/study paper_figures OUT [--draws N] [--setting NAME] [--jobs CORES]

Every set of machines is drawn as in the paper, and drawn again until the job fits,
under both readings of its cores; every second one also with NICs that differ by
direction. On each, ETP, the improved search (for the same time) and DistDGL place the
job once; then every contender runs at every batch size and peak-to-mean ratio. Writes
the figures (SVG) beside the rows and the tables.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from functools import partial

from tools.paper_figures.contest import (
    REFERENCE_BATCH,
    BatchPool,
    Draw,
    Span,
    sampled_pools,
    warm,
)
from tools.paper_figures.findings import (
    FIGURES,
    Series,
    by_series,
    comparison_table,
    comparisons,
    draw_sweep,
    duel_table,
    verdict_table,
    verdicts,
)
from tools.paper_figures.settings import LOGICAL_PER_CORE, SETTINGS
from tools.runner import Study, Work

BATCHES = (250, 500, REFERENCE_BATCH, 2000)
RATIOS = (1.2, 2.0, 3.0)


def options(parser: ArgumentParser) -> None:
    """Add what is drawn and searched."""
    add = parser.add_argument
    add("--draws", type=int, default=20, help="sets of machines")
    add("--setting", choices=list(SETTINGS), action="append", help="both if not given")
    add("--transfers", type=int, default=10_000, help="candidates of ETP per cluster")


def work(options: Namespace) -> Iterator[Work[Span]]:
    """Yield what is to be drawn, evenly over settings, readings and NICs."""
    pools: dict[str, dict[int, BatchPool]] = {}
    for number in range(options.draws):
        kinds = [(reading, "symmetric") for reading in LOGICAL_PER_CORE]
        kinds += [("cores", "asymmetric")] * (number % 2 == 0)
        for name in sorted(options.setting or SETTINGS):
            if name not in pools:
                pools[name] = sampled_pools(SETTINGS[name], BATCHES)
                # Forked workers inherit what has been compiled here.
                warm(SETTINGS[name], pools[name][REFERENCE_BATCH])
            for reading, nics in kinds:
                kind = number, pools[name], options.transfers, reading, nics
                case = f"{name} {reading} {nics} {number}"
                yield case, partial(one, name, *kind)


def one(
    name: str,
    number: int,
    pools: dict[int, BatchPool],
    transfers: int,
    reading: str,
    nics: str,
) -> list[Span]:
    """Place the job on one set of machines and simulate it at every point."""
    draw = Draw(SETTINGS[name], number, pools, transfers, reading, nics)
    spans = draw.searched
    for batch in BATCHES:
        spans += draw.spans("batch", batch, batch, None)
    for ratio in RATIOS:
        spans += draw.spans("pmr", ratio, REFERENCE_BATCH, ratio)
    return spans


def table(spans: list[Span], options: Namespace) -> Iterator[str]:
    """Draw the figures; yield the tables, in Markdown."""
    spans = sorted(spans, key=lambda s: (s.setting, s.demands, s.nics, s.draw))
    series: dict[tuple[str, str], Series] = {
        kind: by_series(span for span in spans if (span.demands, span.nics) == kind)
        for kind in dict.fromkeys((span.demands, span.nics) for span in spans)
    }
    settings = list(dict.fromkeys(span.setting for span in spans))
    readings = {
        reading: own
        for (reading, nics), own in series.items()
        if nics == "symmetric"
        and all((setting, "batch", "DGTP") in own for setting in settings)
    }
    for number, (setting, _) in FIGURES.items():
        if readings and setting in settings:
            draw_sweep(number, readings, options.out)
    yield verdict_table({name: verdicts(own) for name, own in readings.items()})
    for setting in settings:
        kinds = {
            f"{reading}, {nics}": comparisons(own, setting, REFERENCE_BATCH)
            for (reading, nics), own in series.items()
            if (setting, "batch", "DGTP") in own
        }
        yield f"\n{setting}, batch {REFERENCE_BATCH}:\n\n{comparison_table(kinds)}"
    yield "\n" + duel_table(spans)


STUDY = Study(
    row=Span,
    work=work,
    table=table,
    options=options,
    line=lambda span: span.case,
    settled=("transfers",),
)
