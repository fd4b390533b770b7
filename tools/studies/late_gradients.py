"""Do late gradients cost P3 steps? By optimizer, learning rate, batch and graph.

    tools/study late_gradients OUT [--jobs 2] [--only "sgd"]

P3's authors say that gradients which come late (pipeline A) cost no accuracy. Here a
job trains to one accuracy with pipeline none and with A, all else equal, and the steps
that both take are counted.

Needs EMU_DATA for the graphs of others.
"""

from __future__ import annotations

import itertools
import json
import math
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from emu.experiment.system_rows import measure
from emu.experiment.systems import Target
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.scenario.virtual_training import NotReached
from tools.runner import Study, Work
from tools.studies.winners import content_of

#: Data sets, the accuracy that both are to reach, and seeds per step.
GRAPHS: dict[str, tuple[dict[str, Any], float, tuple[int, ...]]] = {
    "amazon_computers": ({"normalise": True}, 0.85, (128, 512, 2048)),
    "coauthor_physics": ({"normalise": True}, 0.93, (512,)),
    "products-like": ({"scale": 0.004}, 0.7, (128, 512)),
    "products-like, larger": ({"scale": 0.02}, 0.7, (512,)),
}
RULES = {
    "adam 0.01": {"name": "adam", "lr": 0.01},
    "adam 0.003": {"name": "adam", "lr": 0.003},
    "adam 0.001": {"name": "adam", "lr": 0.001},
    "sgd 0.1": {"name": "sgd", "lr": 0.1},
    "sgd 0.5": {"name": "sgd", "lr": 0.5},
}
PIPELINES = ("none", "A")
#: Passes over the training vertices that are tried.
WITHIN = 100


@dataclass(frozen=True)
class Steps:
    """Steps to the accuracy; NaN and the best accuracy where it is not reached."""

    case: str
    graph: str
    rule: str
    seeds: int
    pipeline: str
    steps: float
    best: float


def work(_: Namespace) -> Iterator[Work[Steps]]:
    """Yield every job."""
    for graph, (_content, _accuracy, batches) in GRAPHS.items():
        for seeds, rule, way in itertools.product(batches, RULES, PIPELINES):
            case = f"{graph} {seeds} {rule} {way}"
            yield case, partial(train, case, graph, seeds, rule, way)


def train(case: str, graph: str, seeds: int, rule: str, pipeline: str) -> list[Steps]:
    """Return the row of a job."""
    keys, accuracy, _ = GRAPHS[graph]
    content = content_of("four", "products-like", 50, 100)
    name, *_ = graph.split(",")
    job = {"dataset": {"name": name, **keys}, "optimizer": RULES[rule]}
    content["job"] |= job | {"batch_size": seeds // 4}
    content["systems"] = {"p3": {"optimizer": RULES[rule]}}
    names = [f"{one}{n}" for one in ("fast", "slow") for n in (0, 1)]
    target = Target(accuracy, within=WITHIN)
    about = case, graph, rule, seeds, pipeline
    try:
        row = measure(
            loads(json.dumps(content)), f"p3.{pipeline}", machines=names, target=target
        )
    except NotReached as error:
        return [Steps(*about, math.nan, error.nearest)]
    (scenario,) = row.scenarios.values()
    return [Steps(*about, prepare(scenario).problem.job.iterations, accuracy)]


def table(rows: list[Steps], _: Namespace) -> Iterator[str]:
    """Yield the steps of both pipelines side by side."""
    found = {(row.graph, row.seeds, row.rule, row.pipeline): row for row in rows}
    yield "graph | seeds per step | optimizer | steps, none | A | A over none"
    yield "---|---|---|---|---|---"
    for graph, seeds, rule in dict.fromkeys(key[:3] for key in found):
        both = [found.get((graph, seeds, rule, way)) for way in PIPELINES]
        cells = [_cell(row) for row in both]
        none, late = (row.steps if row else math.nan for row in both)
        ratio = f"{late / none:.2f}" if math.isfinite(late / none) else "-"
        yield f"{graph} | {seeds} | {rule} | {' | '.join(cells)} | {ratio}"


def _cell(row: Steps | None) -> str:
    if row is None:
        return "-"
    if math.isnan(row.steps):
        return f"at best {100 * row.best:.1f} %"
    return f"{row.steps:,.0f}"


STUDY = Study(row=Steps, work=work, table=table)
